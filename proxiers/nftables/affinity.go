package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// clientsPerMap is the maximum number of clients in a session affinity map. If the map is full, the rules send new
// clients to random endpoints.
const clientsPerMap = 1 << 16

// affinity describes the maps of a ServicePort with session affinity. For each pool and endpoint port, the ServicePort
// has a dynamic map from client address to endpoint address.
type affinity struct {
	// id is a hash of the ServicePort and the timeout. Map names contain id, so a ServicePort with a new timeout has
	// new maps.
	id string
	// chainID is a hash of id and ports. The name of a class chain contains chainID, because the chain's rules depend
	// on all ports.
	chainID string
	timeout time.Duration
	// ports holds the sorted, distinct endpoint ports of each pool.
	ports [2][]uint16
}

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

// shortHash returns 16 hexadecimal digits of a SHA-256 hash, enough to distinguish all names in a cluster.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// mapName returns the name of the client map for the pool and the endpoint port.
func (a *affinity) mapName(pool plan.Pool, port uint16) string {
	return fmt.Sprintf("clients-%s-%c-%d", a.id, poolLetter(pool), port)
}

// learnChain returns the name of the chain that adds the endpoint's clients to maps, and the names of the maps, one for
// each pool that contains the endpoint.
func (a *affinity) learnChain(svc *plan.ServicePort, e plan.Endpoint) (chain string, maps clientMaps) {
	letters := ""
	for pool := range svc.Pools {
		if _, found := plan.FindEndpoint(svc.Pools[pool], e.Addr); found {
			letters += string(poolLetter(plan.Pool(pool)))
			maps = append(maps, a.mapName(plan.Pool(pool), e.Addr.Port()))
		}
	}
	return fmt.Sprintf("learn-%s-%s-%d", a.id, letters, e.Addr.Port()), maps
}

// clientMaps holds the names of the maps that a learn chain adds clients to.
type clientMaps []string

func (m clientMaps) Rules(*plan.Node) (rules []string) {
	for _, name := range m {
		// When the host connects to itself, the packet's source address may already be masqueraded.
		rules = append(rules, fmt.Sprintf("update @%s { ct original $ip saddr : $ip daddr }", name))
	}
	return rules
}

// addObjects adds the client maps and the chains that add clients to them.
func (a *affinity) addObjects(n *nfttable.Needs, svc *plan.ServicePort) {
	for pool, ports := range a.ports {
		for _, port := range ports {
			id := nfttable.ObjectID{
				Family: svc.Family, Kind: nfttable.MapObject,
				Name: a.mapName(plan.Pool(pool), port),
			}
			n.AddObject(nfttable.Object{ObjectID: id, Timeout: a.timeout, Size: clientsPerMap})
		}
	}
	for _, list := range svc.Pools {
		for _, e := range list {
			name, maps := a.learnChain(svc, e)
			n.AddObject(nfttable.Object{ObjectID: nfttable.ObjectID{
				Family: svc.Family, Kind: nfttable.ChainObject,
				Name: name,
			}, Rules: maps})
		}
	}
}

// addEntries adds the elements that map a frontend and an endpoint to the endpoint's learn chain. An endpoint in both
// pools gets only one element.
func (a *affinity) addEntries(n *nfttable.Needs, svc *plan.ServicePort, key nfttable.Element, set nfttable.SetID) {
	for pool, list := range svc.Pools {
		for _, ep := range list {
			chain, maps := a.learnChain(svc, ep)
			if pool == int(plan.LocalPool) && len(maps) == 2 {
				continue
			}
			e := key
			e.Peer, e.PeerPort = ep.Addr.Addr(), ep.Addr.Port()
			n.AddEntry(set, e, nfttable.Value{Chain: chain})
		}
	}
}

// mayHaveStaleClients reports whether a client map of the ServicePort next may contain an endpoint that next lacks. The
// change may have removed the endpoint, or an unused map may still hold old clients.
func (a *affinity) mayHaveStaleClients(old, next *plan.ServicePort) bool {
	if old == nil {
		return true
	}
	if before := affinityOf(old); before == nil || before.chainID != a.chainID {
		return true
	}
	for pool, list := range old.Pools {
		for _, e := range list {
			if _, stays := plan.FindEndpoint(next.Pools[pool], e.Addr); !stays {
				return true
			}
		}
	}
	return false
}

// StaleClientMaps returns the client maps that may still contain endpoints removed by a change, each with the remaining
// endpoints.
func StaleClientMaps(change proxiers.Change, families []plan.Family) (maps []nfttable.ClientMap) {
	for _, svc := range change.Changed {
		a := affinityOf(svc)
		if a == nil || !slices.Contains(families, svc.Family) ||
			!a.mayHaveStaleClients(change.Prev.Find(svc.Name, svc.Family), svc) {
			continue
		}
		for pool, ports := range a.ports {
			for _, port := range ports {
				valid := map[netip.Addr]bool{}
				for _, e := range svc.Pools[pool] {
					if e.Addr.Port() == port {
						valid[e.Addr.Addr()] = true
					}
				}
				maps = append(maps, nfttable.ClientMap{
					Family: svc.Family, Name: a.mapName(plan.Pool(pool), port),
					ValidAddrs: valid,
				})
			}
		}
	}
	return maps
}

// ClientMapName returns the name of the client map for a pool and an endpoint port. The ServicePort must have session
// affinity.
func ClientMapName(svc *plan.ServicePort, pool plan.Pool, port uint16) string {
	return affinityOf(svc).mapName(pool, port)
}
