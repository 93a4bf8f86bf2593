package localnodeport

import (
	"net/netip"
	"os"
)

// Sockets provides listening sockets. The sockets may outlive the Proxier: the service manager can hold them during a
// restart, and the process holds them during a reload of the configuration. Clients that connect in between wait in the
// socket's queue instead of being refused.
type Sockets interface {
	// Listen returns the listening socket of an address: the inherited or stored socket if there is one, otherwise a
	// new socket, which is stored. A second Listen without a Release in between returns the same socket. The caller
	// must not close the socket.
	Listen(addr netip.AddrPort) (*os.File, error)
	// Release closes the socket of an address, so that the kernel refuses clients. The socket of a socket unit stays
	// open, and its clients wait in the queue.
	Release(addr netip.AddrPort)
	// Unclaimed lists the inherited sockets that were neither requested by Listen nor released.
	Unclaimed() []netip.AddrPort
}
