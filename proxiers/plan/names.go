package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ServicePortName identifies a Service port.
type ServicePortName struct {
	Namespace, Name string
	// Port is the port's name in the Service, or "" if the port has no name.
	Port     string
	Protocol Protocol
}

// String returns "namespace/name:port/TCP", omitting ":port" if the port has no name.
func (n ServicePortName) String() string {
	if n.Port == "" {
		return fmt.Sprintf("%s/%s/%s", n.Namespace, n.Name, n.Protocol)
	}
	return fmt.Sprintf("%s/%s:%s/%s", n.Namespace, n.Name, n.Port, n.Protocol)
}

// MarshalText implements encoding.TextMarshaler.
func (n ServicePortName) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses the text that String returns.
func (n *ServicePortName) UnmarshalText(text []byte) (err error) {
	parts := strings.Split(string(text), "/")
	ok := len(parts) == 3
	if ok {
		n.Namespace = parts[0]
		n.Name, n.Port, _ = strings.Cut(parts[1], ":")
		n.Protocol, ok = ParseProtocol(parts[2])
	}
	if !ok {
		return fmt.Errorf("%q is not the name of a ServicePort", text)
	}
	return nil
}

// Compare orders ServicePortNames by namespace, name, port name and protocol.
func (n ServicePortName) Compare(o ServicePortName) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name), cmp.Compare(n.Port, o.Port),
		cmp.Compare(n.Protocol, o.Protocol))
}

// Compare defines the order of Plan.Services: by name, then family.
func (s *ServicePort) Compare(o *ServicePort) int {
	return cmp.Or(s.Name.Compare(o.Name), cmp.Compare(s.Family, o.Family))
}

// Compare defines the order of Plan.HealthChecks: by namespace, then name.
func (h *HealthCheck) Compare(o *HealthCheck) int {
	return cmp.Or(cmp.Compare(h.Namespace, o.Namespace), cmp.Compare(h.Name, o.Name))
}

// Protocol is the IP protocol number of a transport protocol that Services support.
type Protocol uint8

// Protocols that Services support.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the Kubernetes name of the protocol: "TCP", "UDP" or "SCTP".
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol is the inverse of Protocol.String. ok is false if s does not name a supported protocol.
func ParseProtocol(s string) (p Protocol, ok bool) {
	switch s {
	case "TCP":
		return TCP, true
	case "UDP":
		return UDP, true
	case "SCTP":
		return SCTP, true
	}
	return 0, false
}

// Family is an address family.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// FamilyOf returns the family of a valid address that is not IPv4-mapped.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

func parse[T ~uint8](value *T, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%q is not one of %q", text, names)
	}
	*value = T(i)
	return nil
}

// Origin classifies the source of a new connection.
type Origin uint8

// The origins. Node.PodSources and Node.PodInterfaces identify the pods on this host, and Node.HostAddrs identifies the
// host itself. All other sources are FromOutside.
const (
	FromPod Origin = iota
	FromHost
	FromOutside
	numOrigins
)

// String returns "pod", "host" or "outside".
func (o Origin) String() string { return [...]string{"pod", "host", "outside"}[o] }

// Verdict specifies how Edgeway handles a new connection.
type Verdict uint8

// The verdicts. Pass appears only in a Decision, for a packet that belongs to no Service.
const (
	// Forward sends the connection to an endpoint in the Route's pool.
	Forward Verdict = iota
	// Reject rejects the connection with an ICMP port unreachable message.
	Reject
	// Drop silently discards the packet.
	Drop
	Pass
)

var verdicts = []string{"forward", "reject", "drop", "pass"}

// String returns the verdict in lower case.
func (v Verdict) String() string { return verdicts[v] }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Verdict) UnmarshalText(text []byte) error { return parse(v, verdicts, text) }

// Pool is one of the two endpoint lists of a ServicePort.
type Pool uint8

// A ServicePort has two pools.
const (
	// ClusterPool holds the endpoints, chosen by topology, for the Cluster traffic policies.
	ClusterPool Pool = iota
	// LocalPool holds the endpoints for the Local traffic policies.
	LocalPool
	numPools
)

var pools = []string{"cluster", "local"}

// String returns "cluster" or "local".
func (p Pool) String() string { return pools[p] }

// MarshalText implements encoding.TextMarshaler.
func (p Pool) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pool) UnmarshalText(text []byte) error { return parse(p, pools, text) }
