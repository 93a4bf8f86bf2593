package fault

import (
	"net/netip"
	"slices"
)

// Scope selects the connections that a fault concerns. The zero Scope selects all connections.
type Scope struct {
	// ServicePort is a name in the form "namespace/name:port/protocol", or "" for all ServicePorts.
	ServicePort string
	Clients     Clients
	// To selects a connection if its destination or one of its endpoints is in this prefix. The zero Prefix selects all
	// connections.
	To netip.Prefix
}

// Clients is a group of clients that a fault concerns.
type Clients uint8

// The groups of clients.
const (
	AllClients Clients = iota
	Host               // this host itself
	Others             // pods and other hosts
	Forwarded          // pods and other hosts, if an endpoint is on another host
	NoClients          // no connection that the rules forward
)

// Flow is a connection that the rules forward.
type Flow struct {
	ServicePort string // namespace/name:port/protocol
	FromHost    bool
	Local       bool
	Addrs       []netip.Addr
}

// Selects reports whether the scope selects the connection.
func (s Scope) Selects(f Flow) bool {
	switch {
	case s.Clients == NoClients,
		s.ServicePort != "" && s.ServicePort != f.ServicePort,
		s.Clients == Host && !f.FromHost,
		s.Clients >= Others && f.FromHost,
		s.Clients == Forwarded && f.Local:
		return false
	}
	return !s.To.IsValid() || slices.ContainsFunc(f.Addrs, s.To.Contains)
}
