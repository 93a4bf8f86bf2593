package fault

import (
	"net/netip"
	"slices"
)

// Scope says which connections a fault concerns. The zero value is all of them.
type Scope struct {
	// ServicePort is namespace/name:port/protocol. "" is any.
	ServicePort string
	Clients     Clients
	// To has a destination or an endpoint of the connection. The zero value has all.
	To netip.Prefix
}

// Clients are those that a fault concerns.
type Clients uint8

// The sorts of clients.
const (
	Anybody   Clients = iota
	Host              // this host itself
	Others            // pods and other hosts
	Forwarded         // Others, and an endpoint that is not on this host
	Nobody            // no connection that the rules forward
)

// Flow is a connection that the rules forward.
type Flow struct {
	ServicePort string // namespace/name:port/protocol
	FromHost    bool
	// Local reports whether all endpoints are on this host.
	Local bool
	// Addrs has the destination and the endpoints.
	Addrs []netip.Addr
}

// Has reports whether the connection is one of the scope.
func (s Scope) Has(f Flow) bool {
	switch {
	case s.Clients == Nobody,
		s.ServicePort != "" && s.ServicePort != f.ServicePort,
		s.Clients == Host && !f.FromHost,
		s.Clients >= Others && f.FromHost,
		s.Clients == Forwarded && f.Local:
		return false
	}
	return !s.To.IsValid() || slices.ContainsFunc(f.Addrs, s.To.Contains)
}
