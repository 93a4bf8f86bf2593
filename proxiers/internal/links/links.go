// Package links knows the network devices of the host: it asks the kernel for them once, and then the kernel's events tell.
package links

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
)

const (
	// receiveBuffer holds some thousands of events. When it overflows the kernel says so, which is an event like any other.
	receiveBuffer = 1 << 20
	// attempts is how often the list is asked for, which the kernel breaks off when devices come or go meanwhile.
	attempts = 5
)

// Device is a network device that is no loopback.
type Device struct {
	Name string
	// Master is the index of the bridge, bond or VRF that it is a part of; 0: none.
	Master int
}

// Links are the devices of one network namespace. All methods may be called from any goroutine.
type Links struct {
	env    proxiers.Env
	kernel *netlink.Handle
	// changed is called when a device has come, or is another one now.
	changed func()

	mu     sync.Mutex
	socket *nl.NetlinkSocket // nil: nobody listens
	// seen are all devices, by index; nil: not known.
	seen map[int]Device
}

// Open opens a socket in the network namespace of the calling thread.
func Open(env proxiers.Env, changed func()) (*Links, error) {
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("socket of rtnetlink: %w", err)
	}
	return &Links{env: env, kernel: kernel, changed: changed}, nil
}

// Close ends what Watch began.
func (l *Links) Close() {
	if socket := l.take(); socket != nil {
		socket.Close() // ends listen
	}
	l.kernel.Close()
}

// take gives the socket to who will close it; nil: somebody else has it.
func (l *Links) take() *nl.NetlinkSocket {
	l.mu.Lock()
	defer l.mu.Unlock()
	socket := l.socket
	l.socket = nil
	return socket
}

// Watch listens for changes, unless that is done already.
func (l *Links) Watch(group *sync.WaitGroup) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket != nil {
		return nil
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return fmt.Errorf("subscribe to rtnetlink: %w", err)
	}
	// Larger than net.core.rmem_max needs CAP_NET_ADMIN; without it the default has to do.
	_ = socket.SetReceiveBufferSize(receiveBuffer, true)
	l.socket = socket
	group.Go(func() { l.listen(socket) })
	return nil
}

// listen runs until the socket is closed, or fails: then a full sync begins again.
func (l *Links) listen(socket *nl.NetlinkSocket) {
	for {
		messages, _, err := socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // events were lost, the subscription goes on
			l.Forget()
			l.changed()
		case err != nil:
			if failed := l.take(); failed != nil {
				failed.Close()
				l.env.Drift("watching network devices failed: " + err.Error())
			}
			return
		}
		for i := range messages {
			if l.note(&messages[i]) {
				l.changed()
			}
		}
	}
}

// note takes an event, and says that a device is new, or has another name or master. The kernel tells of each change of a device, and of
// the ports of bridges by messages of another family.
func (l *Links) note(m *syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC {
		return false
	}
	link, err := netlink.LinkDeserialize(nil, m.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.seen == nil {
		l.seen = nil
		return true
	}
	a := link.Attrs()
	before := l.seen[a.Index]
	delete(l.seen, a.Index)
	if m.Header.Type == unix.RTM_NEWLINK {
		l.see(a)
	}
	after, there := l.seen[a.Index]
	return there && after != before
}

func (l *Links) see(a *netlink.LinkAttrs) {
	if a.Flags&net.FlagLoopback == 0 {
		l.seen[a.Index] = Device{Name: a.Name, Master: a.MasterIndex}
	}
}

// Forget has the devices asked for again.
func (l *Links) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil
}

// List gives the devices by their indices. The kernel is asked for them once, which takes 10 µs for each of them (6.18); then the
// events tell. Those that come meanwhile are told of afterwards.
func (l *Links) List() (map[int]Device, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		if err := l.ask(); err != nil {
			return nil, err
		}
	}
	return maps.Clone(l.seen), nil
}

// ask is called with mu held.
func (l *Links) ask() error {
	all, err := l.kernel.LinkList()
	for range attempts {
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		all, err = l.kernel.LinkList()
	}
	if err != nil {
		return fmt.Errorf("list of network devices: %w", err)
	}
	l.seen = map[int]Device{}
	for _, link := range all {
		l.see(link.Attrs())
	}
	return nil
}
