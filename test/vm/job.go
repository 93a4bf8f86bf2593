package vm

import (
	_ "embed" // embeds the scripts below
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Job is a command to run in a virtual machine.
type Job struct {
	// Suite selects the kernel and the user space. The default is Bookworm.
	Suite Suite
	// Arch is the architecture of the kernel and the user space. The default is AMD64.
	Arch Arch
	// Packages are additional Debian packages. Each distinct list of packages has its own image.
	Packages []string
	// If Systemd is true, systemd is the init process. If Systemd is false, the init process is a script that starts
	// only the job.
	Systemd bool
	// Files maps paths in the VM to files or directories on the host. The runner copies the files before the VM boots.
	// A path is absolute or relative to /vm/job. Root owns the files, and missing directories get mode 0755.
	Files map[string]string
	// Links maps the paths of symbolic links to their targets. The symbolic links exist before the VM boots.
	Links map[string]string
	// Command runs in /vm/job with Env ("NAME=value") in its environment.
	Command []string
	Env     []string
	// Timeout limits the command's run time. The default is DefaultTimeout. A busy host is slow, so use Timeout only to
	// end jobs that hang.
	Timeout time.Duration
	// MemoryMB is the VM's memory in MB. The default is 2048.
	MemoryMB int
	// CPU is QEMU's CPU model with flags. The default depends on Arch.
	CPU string
	// SMP is the number of CPUs in the VM. The default is one, because emulation is a quarter slower with a second CPU,
	// and other VMs can use the host's other CPUs.
	SMP int
	// If Counted is true, the VM derives its clock from the number of executed instructions, at the rate that MIPS
	// sets. Other work on the host then has no effect on measured times. Counted supports only VMs with a single amd64
	// CPU, and does not suit programs that wait for another clock.
	Counted bool
	// MIPS is the rate of the Counted clock, in millions of instructions per second: 1000 divided by a power of two.
	// The default is 250. Use 1000 for programs with timeouts that assume a faster CPU.
	MIPS int
	// Output receives the command's standard output and standard error while the command is running.
	Output io.Writer
	// Notes receives the runner's messages about repeated boots and the CPU time of each VM. The default is standard
	// error.
	Notes io.Writer
	// Out is the directory that receives copies of the files in /vm/out. If Out is "", the runner copies nothing.
	Out string
}

// DefaultTimeout is the default timeout of a job.
const DefaultTimeout = time.Hour

// DefaultCPU is the default CPU model of an AMD64 VM. QEMU 7.2 crashes in one out of eight boots unless the first two
// flags are off, but Linux 7.2 needs cx16 for BPF socket storage. All flags after la57 turn off features that are slow
// to emulate: with erms, the kernel copies byte by byte; with smap, each access to user space ends a translated block.
// QEMU 10 adds fsrm. With fsrm but without erms, Linux 6.1 hangs when it starts.
const DefaultCPU = "max,cx16=off,la57=off,erms=off,fsrm=off,smap=off,smep=off,pku=off"

//go:embed guest/init
var initScript string

//go:embed guest/minimal
var minimalScript string

//go:embed guest/run
var runScript string

//go:embed guest/vm-job.service
var jobUnit string

// maskedUnits lists units that slow down the boot and are unnecessary for the tests.
var maskedUnits = []string{
	"serial-getty@ttyS0.service", "serial-getty@ttyAMA0.service", "getty@tty1.service", "systemd-udev-settle.service",
	"systemd-hwdb-update.service", "systemd-binfmt.service",
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
	"fstrim.timer", "e2scrub_all.timer", "e2scrub_reap.service", "iperf3.service", "ipvsadm.service",
}

// writeFiles writes an archive of the job's files to w. The kernel unpacks this archive after the image's archive.
func (j *Job) writeFiles(w io.Writer, now time.Time) error {
	a := newArchive(w)
	if err := errors.Join(
		a.text("vm/init", initScript, 0o755),
		a.text("vm/minimal", minimalScript, 0o755),
		a.text("vm/run", runScript, 0o755),
		a.text("vm/command", j.script(), 0o644),
		a.text("vm/time", fmt.Sprintln(now.Unix()), 0o644),
		a.addDir("vm/job"), a.addDir("vm/out"),
	); err != nil {
		return err
	}
	if j.Systemd {
		if err := addUnits(a); err != nil {
			return err
		}
	}
	for _, there := range slices.Sorted(maps.Keys(j.Files)) {
		if err := a.addTree(archiveName(there), j.Files[there]); err != nil {
			return fmt.Errorf("file %s of the job: %w", there, err)
		}
	}
	for _, there := range slices.Sorted(maps.Keys(j.Links)) {
		if err := a.symlink(archiveName(there), j.Links[there]); err != nil {
			return err
		}
	}
	return a.close()
}

// archiveName converts a path in the VM to a file name in the archive.
func archiveName(there string) string {
	if !path.IsAbs(there) {
		there = path.Join("/vm/job", there)
	}
	return strings.TrimPrefix(path.Clean(there), "/")
}

func addUnits(a *archive) error {
	const units = "etc/systemd/system/"
	err := errors.Join(
		a.text(units+"vm-job.service", jobUnit, 0o644),
		a.symlink(units+"multi-user.target.wants/vm-job.service", "/etc/systemd/system/vm-job.service"),
		// With an empty machine-id, systemd would treat the boot as a first boot and enable or disable units.
		a.text("etc/machine-id", "ed6e0000000000000000000000000001\n", 0o444),
		a.text("etc/hostname", "vm\n", 0o644),
		a.symlink("etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target"),
	)
	for _, unit := range maskedUnits {
		err = errors.Join(err, a.symlink(units+unit, "/dev/null"))
	}
	return err
}

func (j *Job) script() string {
	var b strings.Builder
	for _, e := range j.Env {
		fmt.Fprintf(&b, "export %s\n", quote(e))
	}
	b.WriteString("exec")
	for _, word := range j.Command {
		b.WriteString(" " + quote(word))
	}
	return b.String() + "\n"
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// writeInitrd writes the image's files and the job's files into one file. It unlinks the file, so no large file remains
// after this process exits.
func (j *Job) writeInitrd(img image) (*os.File, error) {
	out, err := os.CreateTemp("", "edgeway-vm-initrd-")
	if err != nil {
		return nil, err
	}
	root, err := os.Open(img.root)
	if err != nil {
		return nil, errors.Join(err, os.Remove(out.Name()), out.Close())
	}
	defer func() { _ = root.Close() }()
	_, err = io.Copy(out, root)
	if err := errors.Join(os.Remove(out.Name()), err, j.writeFiles(out, time.Now())); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}
