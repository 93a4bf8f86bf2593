package localnodeport

import (
	"net/netip"
	"os"
)

// Sockets provides listening sockets that may outlive the Proxier. The service manager can hold the sockets while the
// daemon restarts, and the process holds the sockets while the configuration is reloaded. The kernel queues clients
// that connect in the meantime.
type Sockets interface {
	// Listen returns the listening socket of an address. Listen creates and stores a new socket if none is inherited or
	// stored. Every call before Release returns the same socket. The caller must not close the socket.
	Listen(addr netip.AddrPort) (*os.File, error)
	// Release closes the socket of an address, so that the kernel refuses new connections. If a socket unit provides
	// the socket, systemd keeps the socket open, and the kernel queues new connections.
	Release(addr netip.AddrPort)
	// Unclaimed lists the inherited sockets for which neither Listen nor Release was called.
	Unclaimed() []netip.AddrPort
}
