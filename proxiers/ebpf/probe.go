package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/dispatch"
	"edgeway/proxiers/internal/nfttable"
)

// probeHost loads nothing: it looks at whether there is what the programs need, and who may load them.
func probeHost(ctx context.Context, dir string) error {
	if err := kernelHas(); err != nil {
		return err
	}
	if _, err := findRoot("/proc/self/mountinfo"); err != nil {
		return err
	}
	if _, err := netnsCookie(); err != nil {
		return err
	}
	if err := loadable(dir); err != nil {
		return err
	}
	return nfttable.Probe(ctx, schema(), dispatch.Sample())
}

// kernelHas asks for BPF by a call that changes nothing.
func kernelHas() error {
	_, err := ebpf.LoadPinnedMap("/proc/self", nil) // no file of BPF: EPERM, EINVAL or the like, but not ENOSYS
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: this kernel has no BPF (CONFIG_BPF_SYSCALL)", proxiers.ErrUnsupported)
	}
	return nil
}

// loadable says whether the programs are pinned, or this process may load them.
func loadable(dir string) error {
	o, err := openPinned(dir, size{})
	if err == nil {
		o.close()
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return explain(err)
	}
	missing, err := lacks(unix.CAP_SYS_ADMIN)
	if err != nil || !missing {
		return err
	}
	if bpf, err := lacks(unix.CAP_BPF); err != nil || !bpf {
		if perfmon, err := lacks(unix.CAP_PERFMON); (err != nil || !perfmon) && isBPF(dir) {
			return err
		}
	}
	return fmt.Errorf("%w: the BPF programs are not loaded, and this process may not load them: %s", proxiers.ErrUnsupported, remedy)
}

// remedy is what loads the programs.
const remedy = `link /usr/share/edgeway/ebpf.conf as a drop-in of the service, or run "systemctl start edgeway-bpf.service"`

// lacks reads whether this process is without a capability.
func lacks(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) == 0, nil
}

// explain says what helps against an error.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: this kernel lacks something that the BPF programs need (Linux 6.1 or newer is known to have all): %w", proxiers.ErrUnsupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (%s)", err, remedy)
	}
	return err
}

// explainPackets says what helps where the program for packets cannot be loaded. The kernel has its functions in modules as a rule, whose types only
// CAP_SYS_ADMIN may look up (6.1, 7.2); cilium/ebpf v0.22.0 then says that there are none.
func explainPackets(err error) error {
	if err == nil {
		return nil
	}
	_, modules := os.Stat("/sys/kernel/btf/nf_nat")
	missing, e := lacks(unix.CAP_SYS_ADMIN)
	switch {
	case e == nil && missing && modules == nil:
		return fmt.Errorf("CAP_SYS_ADMIN is missing, which the functions of a module need (%s): %w", remedy, err)
	case errors.Is(err, ebpf.ErrNotSupported) && modules != nil:
		return fmt.Errorf("%s, see if modprobe nf_nat helps: %w", noFunctions, err)
	}
	return explain(err)
}
