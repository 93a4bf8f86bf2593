package nodeinfo

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/files"
)

// resolvConf returns the files that list this host's name servers. /etc/resolv.conf may list only systemd-resolved, so
// resolvConf includes the file that lists systemd-resolved's upstream servers.
func resolvConf() []string { return []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} }

const (
	maxResolvConf  = 64 << 10
	maxNameServers = 32
)

// readNameServers returns the name servers in the files, sorted and without zones. readNameServers omits loopback,
// link-local and unspecified addresses, which no Service can have. If a file exists but cannot be read, the result also
// includes the name servers from the previous call.
func readNameServers(paths []string, before []netip.Addr) []netip.Addr {
	var found []netip.Addr
	for _, path := range paths {
		text, err := files.Read(path, maxResolvConf)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			found = append(found, before...)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "nameserver" {
				continue
			}
			a, err := netip.ParseAddr(fields[1])
			a = a.Unmap().WithZone("")
			if err == nil && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() &&
				len(found) < maxNameServers {
				found = append(found, a)
			}
		}
	}
	return slices.Clip(sorted(found))
}
