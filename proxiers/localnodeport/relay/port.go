package relay

import "syscall"

// Listener is a listening TCP socket: a *net.TCPListener, or an *os.File.
type Listener = syscall.Conn

// Port is one listening socket that a Relay accepts from.
type Port struct{}

// SetTarget changes who chooses the endpoints, from the next dial on. Running connections stay. It
// waits for nothing.
func (p *Port) SetTarget(t Target) {}

// Stop ends accepting: when it returns, no more connections are taken from the listening socket.
// Those that wait in its queue stay there for who serves it next, or until the socket is closed.
// Connections that were accepted go on until they end. A second Stop does nothing.
func (p *Port) Stop() {}
