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
	// The caller does not close it.
	Listen(addr netip.AddrPort) (*os.File, error)
	// Release closes the socket of an address, so that the kernel refuses clients. The socket of a socket unit stays
	// open, and its clients wait in the queue.
	Release(addr netip.AddrPort)
	// Unclaimed lists the sockets that were handed in and that nobody has asked for, nor released.
	Unclaimed() []netip.AddrPort
}
