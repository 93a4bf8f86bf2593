package flowtable

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// receiveBuffer holds some thousands of events. When it overflows the kernel says so, which is an event like any other.
const receiveBuffer = 1 << 20

// links are the host's network devices.
type links struct {
	env    proxiers.Env
	kernel *netlink.Handle
	// changed is called when a device has come.
	changed func()

	mu     sync.Mutex
	socket *nl.NetlinkSocket // nil: nobody listens
	// seen are all devices but loopback ones, by index; nil: not known.
	seen map[int]string
}

func openLinks(env proxiers.Env, changed func()) (*links, error) {
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("socket of rtnetlink: %w", err)
	}
	return &links{env: env, kernel: kernel, changed: changed}, nil
}

func (l *links) close() {
	if socket := l.take(); socket != nil {
		socket.Close() // ends listen
	}
	l.kernel.Close()
}

// take gives the socket to who will close it; nil: somebody else has it.
func (l *links) take() *nl.NetlinkSocket {
	l.mu.Lock()
	defer l.mu.Unlock()
	socket := l.socket
	l.socket = nil
	return socket
}

// watch listens for new devices, unless that is done already.
func (l *links) watch(group *sync.WaitGroup) error {
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
func (l *links) listen(socket *nl.NetlinkSocket) {
	for {
		messages, _, err := socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // events were lost, the subscription goes on
			l.forget()
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

// note takes an event, and says that a device is new or has another name: from Linux 6.16 on a flowtable has devices by name.
// The kernel tells of each change of a device, and of the ports of bridges by messages of another family.
func (l *links) note(m *syscall.NetlinkMessage) bool {
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
	if m.Header.Type == unix.RTM_NEWLINK && a.Flags&net.FlagLoopback == 0 {
		l.seen[a.Index] = a.Name
	}
	after, there := l.seen[a.Index]
	return there && after != before
}

// forget has the devices asked for again.
func (l *links) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil
}

// list gives the devices that the options want, by index. The kernel is asked for them once, which takes 10 µs for each of them
// (6.18); then the events tell. Those that come meanwhile are taken afterwards.
func (l *links) list(opts Options) (map[int]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		if err := l.ask(); err != nil {
			return nil, err
		}
	}
	wanted := maps.Clone(l.seen)
	maps.DeleteFunc(wanted, func(_ int, name string) bool { return !wants(opts, name) })
	return wanted, nil
}

// ask is called with mu held.
func (l *links) ask() error {
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
	l.seen = map[int]string{}
	for _, link := range all {
		if a := link.Attrs(); a.Flags&net.FlagLoopback == 0 {
			l.seen[a.Index] = a.Name
		}
	}
	return nil
}

// wants says that a device is among those of the options. A name that has a meaning to nft cannot be written.
func wants(opts Options, name string) bool {
	if strings.HasSuffix(name, "*") || plan.CheckInterface(name) != nil {
		return false
	}
	matches := func(pattern string) bool { return plan.MatchInterface(pattern, name) }
	return (len(opts.Devices) == 0 || slices.ContainsFunc(opts.Devices, matches)) && !slices.ContainsFunc(opts.Exclude, matches)
}

const (
	// settle is how long after an event it is acted on: several come together.
	settle = 100 * time.Millisecond
	// pause is the least time between two writings of the table that changes by other programs cause.
	pause = time.Second
	// retry is when is tried again what failed.
	retry = time.Second
)

// linksChanged has the devices looked at soon.
func (f *follower) linksChanged() {
	f.mu.Lock()
	known := !f.look.IsZero()
	if !known {
		f.look = time.Now().Add(settle)
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}
