package localnodeport

import (
	"net/netip"
	"os"
)

// Sockets is where listening sockets come from. They may outlive the Proxier: the service manager can
// hold them over a restart, and the process holds them over a reload of its configuration. Clients
// that connect in between wait in the socket's queue instead of being refused.
type Sockets interface {
	// Listen gives the listening socket of an address: the one that was handed in or kept before, else
	// a new one, which is kept. A second Listen without a Release in between gives the same one.
	// The caller does not close it. It is not a net.Listener, which Go's own poller would watch in addition to
	// the relay's.
	Listen(addr netip.AddrPort) (*os.File, error)
	// Release ends what Listen began, or closes a socket that nobody has asked for. When a socket unit
	// holds the socket too, so that it cannot be closed, its clients are reset from now on.
	Release(addr netip.AddrPort)
	// Unclaimed lists the sockets that were handed in and that nobody has asked for, nor released.
	Unclaimed() []netip.AddrPort
}
