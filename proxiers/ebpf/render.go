package ebpf

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// bpf/maps.h also defines these values.
const (
	masqueraded uint32 = 1
	left        uint32 = 2
	probing     uint32 = 4
	kindShift          = 30

	localEndpoint uint16 = 1

	nodePorts uint8 = 1
	source    uint8 = 2

	markRules      uint32 = 1
	trackingIsFull uint32 = 2
)

// record holds the numbers that identify a ServicePort in the maps, and records whether the ServicePort fits into the
// maps.
type record struct {
	service uint32
	// sets holds the number of each pool's endpoint set, or 0 for an unused pool.
	sets [2]uint32
	// endpointsOverflow is set if the maps are too small for the endpoints. frontendsOverflow is set if the maps are
	// too small for the frontends.
	endpointsOverflow, frontendsOverflow bool
}

// overflows reports whether a ServicePort does not fit into the maps.
func (r record) overflows() bool { return r.endpointsOverflow || r.frontendsOverflow }

type portKey struct {
	name   plan.ServicePortName
	family plan.Family
}

func keyOf(svc *plan.ServicePort) portKey { return portKey{svc.Name, svc.Family} }

func addressOf(a netip.Addr) (out socketsAddress) {
	out.Byte = a.As16()
	return out
}

// networkOrder returns a port in network byte order, which the programs use.
func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

func protocolNumber(p plan.Protocol) uint8 {
	if p == plan.UDP {
		return unix.IPPROTO_UDP
	}
	return unix.IPPROTO_TCP
}

// origins returns the connection origins for which each frontend has map elements.
func origins() []plan.Origin { return []plan.Origin{plan.FromPod, plan.FromHost, plan.FromOutside} }

// bypassReason returns the reason why the programs leave a frontend to nftables, or false if the programs serve it. The
// reason is the index of a counter.
func bypassReason(svc *plan.ServicePort, f *plan.Frontend, from plan.Origin) (counter, bool) {
	route := f.Routes[from]
	switch {
	case f.AllowFrom != nil:
		return leftRanges, true // an unbound socket has no source address yet
	case svc.Affinity > 0:
		return leftAffinity, true // nftables and BPF would remember different endpoints
	case route.Verdict != plan.Forward, len(svc.Pools[route.Pool]) == 0:
		return leftVerdict, true
	}
	return 0, false
}

// usedPools reports, for each of a ServicePort's pools, whether the pool needs a set of endpoints.
func usedPools(svc *plan.ServicePort) (used [2]bool) {
	if svc == nil || svc.Name.Protocol == plan.SCTP {
		return used
	}
	for i := range svc.Frontends {
		for _, from := range origins() {
			if _, isLeft := bypassReason(svc, &svc.Frontends[i], from); !isLeft {
				used[svc.Frontends[i].Routes[from].Pool] = true
			}
		}
	}
	return used
}

func frontendKey(svc *plan.ServicePort, f *plan.Frontend, from plan.Origin) socketsFrontendKey {
	k := socketsFrontendKey{
		Port: networkOrder(f.Port), Protocol: protocolNumber(svc.Name.Protocol),
		Origin: uint8(from),
	}
	switch {
	case f.Kind != plan.NodePort:
		k.Addr = addressOf(f.Addr)
	case svc.Family == plan.IPv4:
		k.Addr = addressOf(netip.IPv4Unspecified())
	}
	return k
}

// eachFrontend calls add for each frontend of a ServicePort, including frontends that the programs leave to nftables.
// If a frontend had no element, the programs would instead look for a NodePort at the frontend's address and port.
func (r record) eachFrontend(svc *plan.ServicePort, add func(socketsFrontendKey, socketsFrontend)) {
	if svc == nil || svc.Name.Protocol == plan.SCTP || r.frontendsOverflow {
		return
	}
	for i := range svc.Frontends {
		for _, from := range origins() {
			f := &svc.Frontends[i]
			add(frontendKey(svc, f, from), r.frontend(svc, f, from))
		}
	}
}

func (r record) frontend(svc *plan.ServicePort, f *plan.Frontend, from plan.Origin) socketsFrontend {
	v := socketsFrontend{Service: r.service, Flags: uint32(f.Kind) << kindShift}
	why, isLeft := bypassReason(svc, f, from)
	switch route := f.Routes[from]; {
	case isLeft:
		v.Flags |= left | uint32(why)<<8
	case r.endpointsOverflow:
		v.Flags |= left | uint32(leftRoom)<<8
	default:
		v.Set, v.Count = r.sets[route.Pool], uint32(len(svc.Pools[route.Pool]))
		if route.SNAT {
			v.Flags |= masqueraded
		}
	}
	return v
}

// takenKey returns the key in the map "taken" for a ServicePort's frontends of the given kind.
func takenKey(service uint32, kind plan.FrontendKind) uint32 {
	return service | uint32(kind)<<kindShift
}

// takenService returns the ServicePort number that a key of the map "taken" contains.
func takenService(key uint32) uint32 { return key &^ (3 << kindShift) }

func endpoints(pool []plan.Endpoint) []socketsEndpoint {
	out := make([]socketsEndpoint, len(pool))
	for i, e := range pool {
		out[i].Addr, out[i].Port = addressOf(e.Addr.Addr()), networkOrder(e.Addr.Port())
		if e.Local {
			out[i].Flags = localEndpoint
		}
	}
	return out
}

// eachMember calls add for the endpoints that UDP sockets may stay connected to, including endpoints that receive no
// new connections.
func (r record) eachMember(svc *plan.ServicePort, add func(socketsMemberKey)) {
	if svc == nil || svc.Name.Protocol != plan.UDP || r.overflows() || usedPools(svc) == [2]bool{} {
		return
	}
	for _, e := range svc.Serving {
		add(memberKey(r.service, e.Addr))
	}
}

func memberKey(service uint32, e netip.AddrPort) socketsMemberKey {
	return socketsMemberKey{Addr: addressOf(e.Addr()), Service: service, Port: networkOrder(e.Port())}
}

// addressPurposes returns the purposes for which the programs may use each host address.
func addressPurposes(n *plan.Node) map[socketsAddress]uint8 {
	out := map[socketsAddress]uint8{}
	if n == nil {
		return out
	}
	for _, a := range n.NodePortAddrs {
		if !a.IsLoopback() {
			out[addressOf(a)] |= nodePorts
		}
	}
	for _, a := range n.HostAddrs {
		if !a.IsLoopback() && n.Origin(a, "") == plan.FromHost {
			out[addressOf(a)] |= source
		}
	}
	return out
}

// counter is an index into the programs' counter map.
type counter uint8

const (
	connectedTCP counter = iota
	connectedUDP
	sentUDP
	packetsTCP
	leftRanges
	leftAffinity
	leftVerdict
	leftRoom
	leftBound
	leftCrowded
	leftStorage
	leftRace
	leftRoute
	leftTracking
	leftRate
	numCounters
)

// String returns the counter's name for use in messages and metrics.
func (c counter) String() string {
	return [numCounters]string{
		"TCP connect", "UDP connect", "UDP send", "TCP packet",
		"source ranges", "session affinity", "no endpoint or a policy", "maps are full",
		"socket bound to an address or device", "socket of several Services", "no memory for the socket",
		"endpoints just replaced",
		"no route to masquerade by", "connection tracking refused", "too many new connections at once",
	}[c]
}
