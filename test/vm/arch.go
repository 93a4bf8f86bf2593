package vm

// Arch is the Debian architecture of a VM.
type Arch string

// An AMD64 VM emulates a PC. The ARM VMs emulate boards with a Cortex-A72 (ARM64) and a Cortex-A15 (ARMHF).
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
	ARMHF Arch = "armhf"
)

// platform describes how QEMU emulates an architecture.
type platform struct {
	program string
	machine string
	cpu     string
	console string
	// kernel is the Debian package that contains the kernel.
	kernel string
}

var platforms = map[Arch]platform{
	AMD64: {
		program: "qemu-system-x86_64", machine: "pc", cpu: DefaultCPU,
		console: "ttyS0", kernel: "linux-image-cloud-amd64",
	},
	ARM64: {
		program: "qemu-system-aarch64", machine: "virt", cpu: "cortex-a72",
		console: "ttyAMA0", kernel: "linux-image-cloud-arm64",
	},
	// The armhf kernel is built without LPAE and therefore cannot reach the PCI configuration space above 4 GB
	// (highmem=on).
	ARMHF: {
		program: "qemu-system-arm", machine: "virt,highmem=off", cpu: "cortex-a15",
		console: "ttyAMA0", kernel: "linux-image-armmp",
	},
}

// Program returns the QEMU program that emulates the architecture.
func (a Arch) Program() string { return platforms[a].program }
