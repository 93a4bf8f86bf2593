package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// affinity describes the maps of a ServicePort with session affinity. There is one map for each pool
// and port of its endpoints: a dynamic map from client address to endpoint address.
type affinity struct {
	// id stands for the ServicePort and the time-out in the names of maps: a new time-out starts afresh.
	id string
	// chainID stands for id and ports in the names of class chains, whose rules go through all ports.
	chainID string
	timeout time.Duration
	// ports holds the distinct endpoint ports of each pool, sorted.
	ports [2][]uint16
}

// affinityOf gives nil for a ServicePort without session affinity.
func affinityOf(svc *plan.ServicePort) *affinity {
	if svc.Affinity <= 0 {
		return nil
	}
	a := &affinity{timeout: max(svc.Affinity, time.Second)}
	a.id = shortHash(fmt.Sprintf("%s %s", svc.Name, a.timeout))
	for pool, list := range svc.Pools {
		for _, e := range list {
			a.ports[pool] = append(a.ports[pool], e.Addr.Port())
		}
		slices.Sort(a.ports[pool])
		a.ports[pool] = slices.Compact(a.ports[pool])
	}
	a.chainID = shortHash(fmt.Sprint(a.id, a.ports))
	return a
}

// shortHash gives 16 hexadecimal digits, enough that no two names of a cluster share them.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// mapName names the map of the clients of the endpoints of a pool that have this port.
func (a *affinity) mapName(pool plan.Pool, port uint16) string {
	return fmt.Sprintf("clients-%s-%c-%d", a.id, poolLetter(pool), port)
}

// lesson names the chain that notes a client of an endpoint, and the maps that it notes it in: those
// of the pools that have the endpoint.
func (a *affinity) lesson(svc *plan.ServicePort, e plan.Endpoint) (chain string, maps []string) {
	letters := ""
	for pool := range svc.Pools {
		_, found := slices.BinarySearchFunc(svc.Pools[pool], e.Addr, func(o plan.Endpoint, a netip.AddrPort) int { return o.Addr.Compare(a) })
		if found {
			letters += string(poolLetter(plan.Pool(pool)))
			maps = append(maps, a.mapName(plan.Pool(pool), e.Addr.Port()))
		}
	}
	return fmt.Sprintf("learn-%s-%s-%d", a.id, letters, e.Addr.Port()), maps
}
