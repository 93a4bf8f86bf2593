package daemon

import (
	"fmt"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/nftables"
)

// Backends lists every backend. A new one is a folder below proxiers and a line here.
func Backends() []proxiers.Backend {
	return slices.Concat(
		[]proxiers.Backend{{Name: nftables.Name, Probe: nftables.Probe, New: nftables.New, Cleanup: nftables.Cleanup}},
		iptables.Backends(),
	)
}

// backend gives the one with this name. The configuration accepts no name that is not in the list.
func backend(name string) (proxiers.Backend, error) {
	for _, b := range Backends() {
		if b.Name == name {
			return b, nil
		}
	}
	return proxiers.Backend{}, fmt.Errorf("proxy.backend: there is no backend %q", name)
}
