package localnodeport

import (
	"net/netip"
	"os"
)

// Sockets provides listening sockets. The sockets may outlive the Proxier: the service manager can hold them during a
// restart, and the process holds them during a reload of the configuration. Clients that connect during a restart wait
// in the socket's queue instead of being refused.
type Sockets interface {
	// Listen returns the listening socket of an address. If there is no inherited or stored socket, Listen creates and
	// stores a new socket. Until Release, every Listen for the address returns the same socket. The caller must not
	// close the socket.
	Listen(addr netip.AddrPort) (*os.File, error)
	// Release closes the socket of an address, so that the kernel refuses clients. The socket of a socket unit stays
	// open, and its clients wait in the queue.
	Release(addr netip.AddrPort)
	// Unclaimed lists the inherited sockets for which neither Listen nor Release was called.
	Unclaimed() []netip.AddrPort
}
