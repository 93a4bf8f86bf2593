package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
)

const (
	// serverList is the path of a file that exists if IPVS is available.
	serverList = "/proc/net/ip_vs"
	sysctls    = "/proc/sys/net/ipv4/vs/"
)

func available() error {
	if _, err := os.Stat(serverList); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", proxiers.ErrUnsupported, missingReason("/lib/modules"))
	} else if err != nil {
		return fmt.Errorf("look for IPVS: %w", err)
	}
	if _, err := os.Stat(sysctls + "conntrack"); err != nil {
		return fmt.Errorf("%w: IPVS in this kernel does not support connection tracking (CONFIG_IP_VS_NFCT): %w",
			proxiers.ErrUnsupported, err)
	}
	return nil
}

// missingReason says whether the ip_vs kernel module is missing or merely not loaded. missingReason needs read access
// to the modules directory.
func missingReason(modules string) string {
	const load = "the ip_vs kernel module is not loaded: run \"modprobe ip_vs\", " +
		"list ip_vs in a file in /etc/modules-load.d, and run \"edgeway reload\""
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return load
	}
	dir := filepath.Join(modules, unix.ByteSliceToString(name.Release[:]))
	list, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil || strings.Contains(string(list), "/ip_vs.ko") {
		return load
	}
	return "this kernel has no IPVS: " + dir + " has no module ip_vs"
}
