package rtnl

import (
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// receiveBuffer is the size of a socket's receive buffer in bytes, enough for notifications about a few thousand
// interfaces.
const receiveBuffer = 1 << 20

// Host implements Kernel with netlink sockets in the network namespace of the thread that calls Subscribe.
type Host struct{}

// Subscribe implements Kernel.
func (Host) Subscribe(groups ...uint) (Socket, error) { return subscribe(receiveBuffer, groups...) }

func subscribe(buffer int, groups ...uint) (Socket, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, err
	}
	// Setting a buffer size above net.core.rmem_max requires CAP_NET_ADMIN. Without CAP_NET_ADMIN, the socket keeps the
	// default buffer size.
	_ = s.SetReceiveBufferSize(buffer, true)
	return socket{s}, nil
}

type socket struct{ *nl.NetlinkSocket }

func (s socket) Receive() ([]syscall.NetlinkMessage, error) {
	messages, _, err := s.NetlinkSocket.Receive()
	return messages, err
}
