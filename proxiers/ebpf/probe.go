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
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
)

// probeHost returns an error if the host does not support the programs, or if the programs are not loaded and this
// process cannot load them.
func probeHost(ctx context.Context, dir string) error {
	if err := requireBPF(); err != nil {
		return err
	}
	if _, err := findRoot("/proc/self/mountinfo"); err != nil {
		return err
	}
	if _, err := netnsCookie(); err != nil {
		return err
	}
	if err := requireLoadable(dir); err != nil {
		return err
	}
	return nfttable.Probe(ctx, schema(false), nftables.Sample())
}

// requireBPF returns an error if the kernel lacks BPF. The system call that requireBPF uses has no side effects.
func requireBPF() error {
	_, err := ebpf.LoadPinnedMap("/proc/self", nil) // a kernel with BPF returns EPERM, EINVAL or similar
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: this kernel has no BPF (CONFIG_BPF_SYSCALL)", proxiers.ErrUnsupported)
	}
	return nil
}

// requireLoadable returns an error unless the programs are pinned or this process may load them.
func requireLoadable(dir string) error {
	o, err := openPinned(dir, size{}, false)
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
	return fmt.Errorf("%w: the BPF programs are not loaded, and this process is not allowed to load them: %s",
		proxiers.ErrUnsupported, loadFix)
}

// tcFix is the command that grants the loader the privileges to load the tc program.
const tcFix = "mkdir -p /etc/systemd/system/edgeway-bpf.service.d && ln -s /usr/share/edgeway/ebpf-tc.conf /etc/systemd/system/edgeway-bpf.service.d/ && systemctl daemon-reload && systemctl restart edgeway"

// loadFix explains to the administrator how to load the programs.
const loadFix = `link /usr/share/edgeway/ebpf.conf as a drop-in of the service, or run "systemctl start edgeway-bpf.service", then "edgeway reload"`

func lacks(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) == 0, nil
}

func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: this kernel lacks a feature that the BPF programs need "+
			"(Linux 6.1 and newer have all of these features): %w", proxiers.ErrUnsupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (%s)", err, loadFix)
	}
	return err
}

// explainTCError adds the fix to an error from loading the tc program. The tc program calls kernel functions that are
// usually in modules. Only a process with CAP_SYS_ADMIN may look up a module's types (Linux 6.1, 7.2). Without
// CAP_SYS_ADMIN, cilium/ebpf v0.22.0 therefore reports the kernel functions as missing.
func explainTCError(err error) error {
	if err == nil {
		return nil
	}
	_, modules := os.Stat("/sys/kernel/btf/nf_nat")
	missing, e := lacks(unix.CAP_SYS_ADMIN)
	switch {
	case e == nil && missing && modules == nil:
		return fmt.Errorf("ebpf.tc = true needs CAP_SYS_ADMIN in edgeway-bpf.service, because nf_nat is a module on this host; fix: %s (%w)", tcFix, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("edgeway-bpf.service has not loaded the tc program since ebpf.tc became true; fix: systemctl restart edgeway (%w)", err)
	case errors.Is(err, ebpf.ErrNotSupported) && modules != nil:
		return fmt.Errorf("%s: %w; if nf_nat is a module, run modprobe nf_nat", noFunctions, err)
	}
	return explain(err)
}
