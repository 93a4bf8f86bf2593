package ebpf

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/internal/sysctl"
	"edgeway/proxiers/plan"
)

// The functions in this file detect missing kernel features and kernel bugs. packets.go and devices.go work around
// differences between kernel versions.

// missingFeatures returns a fault if tc is set but the tc program cannot run. If Edgeway serves IPv6 and the kernel has
// the bug that mayMisdeliver detects, missingFeatures also returns a fault for the bug.
func missingFeatures(dir string, tc bool, served []plan.Family) (out []fault.Fault) {
	if tc {
		out = missingTCFeatures(dir)
	}
	if slices.Contains(served, plan.IPv6) && mayMisdeliver() {
		out = append(out, fault.Fault{
			ID: shortcutFault, Severity: fault.Warning, Message: mixedUp, Fix: "sysctl -w " + earlyDemux + "=0",
		})
	}
	return out
}

// missingTCFeatures returns a fault if the kernel lacks a feature that the tc program needs, or if the tc program is
// not loaded.
func missingTCFeatures(dir string) []fault.Fault {
	for _, f := range []struct{ module, name string }{
		{"nf_conntrack", "bpf_skb_ct_alloc"},
		{"nf_nat", "bpf_ct_set_nat_info"},
	} {
		if err := requireFunction(f.module, f.name); err != nil {
			return []fault.Fault{{
				ID: shortcutFault, Severity: fault.Warning, Fix: "modprobe " + f.module + "  # may help",
				Message: fmt.Sprintf("the tc program does not serve connections from other hosts: %s: %v", noFunctions, err),
			}}
		}
	}
	o, err := openPinned(dir, size{}, true)
	if err != nil { // Probe reports this error
		return nil
	}
	defer o.close()
	if o.tcProgram != nil {
		return nil
	}
	return []fault.Fault{{
		ID: shortcutFault, Severity: fault.Warning, Fix: tcFix,
		Message: "the tc program does not serve connections from other hosts: " +
			"edgeway-bpf.service has not loaded the tc program (ebpf.tc); loading it usually needs CAP_SYS_ADMIN",
	}}
}

// requireFunction returns an error unless the kernel offers the given function to BPF programs. A module's functions
// are available only while the module is loaded.
func requireFunction(module, function string) error {
	spec, err := btf.LoadKernelModuleSpec(module)
	if errors.Is(err, fs.ErrNotExist) {
		spec, err = btf.LoadKernelSpec() // the module may be built into the kernel
	}
	if err == nil {
		_, err = spec.AnyTypeByName(function)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", module, err)
	}
	return nil
}

const noFunctions = "this kernel has no connection tracking for BPF " +
	"(needs Linux 6.1 or newer with CONFIG_DEBUG_INFO_BTF_MODULES)"

const (
	earlyDemux = "net.ipv4.tcp_early_demux" // this setting also controls IPv6
	mixedUp    = "this kernel can deliver replies to the wrong IPv6 socket (Linux 6.12 or newer does not): " +
		"a connection from this host through nftables can then fail, or wait for up to a minute, " +
		"if an earlier connection through the BPF programs had the same port and endpoint"
)

// mayMisdeliver reports whether the kernel may deliver a response to the wrong socket, because early demux looks up the
// socket before NAT has fully reversed the translation. For IPv4, and for IPv6 since Linux 6.12, NAT repeats the socket
// lookup (commit "undo erroneous tcp edemux lookup after port clash"). mayMisdeliver returns false if it cannot read
// the sysctls or the kernel's symbols.
func mayMisdeliver() bool {
	for _, setting := range []string{earlyDemux, "net.ipv4.ip_early_demux"} {
		if on, _ := sysctl.Int("/proc/sys/" + strings.ReplaceAll(setting, ".", "/")); on == 0 {
			return false
		}
	}
	symbols, err := os.Open("/proc/kallsyms")
	if err != nil {
		return false
	}
	defer symbols.Close()
	nat := false
	for lines := bufio.NewScanner(symbols); lines.Scan(); {
		// A line in /proc/kallsyms consists of an address, a type, a name and a module.
		if fields := strings.Fields(lines.Text()); len(fields) > 2 {
			nat = nat || fields[2] == "nf_nat_ipv6_out"
			if fields[2] == "nf_nat_ipv6_local_in" {
				return false
			}
		}
	}
	return nat
}
