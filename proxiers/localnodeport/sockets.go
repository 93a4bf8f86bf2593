package localnodeport

import (
	"net/netip"
	"os"
)

// Sockets provides listening sockets that may outlive the Proxier. The service manager can keep the sockets open while
// the daemon restarts. The process keeps the sockets open while it reloads the configuration. While no Proxier accepts
// connections, the kernel queues new connections.
type Sockets interface {
	// Listen returns the listening socket for an address. If Sockets holds no socket for the address, Listen creates
	// and stores a socket. Every call before Release returns the same socket. The caller must not close the socket.
	Listen(addr netip.AddrPort) (*os.File, error)
	// Release closes the socket for an address, so the kernel refuses new connections. If the socket belongs to a
	// socket unit, systemd keeps the socket open, and the kernel queues new connections.
	Release(addr netip.AddrPort)
	// Unused lists the addresses of inherited sockets for which the Proxier has called neither Listen nor Release.
	Unused() []netip.AddrPort
}
