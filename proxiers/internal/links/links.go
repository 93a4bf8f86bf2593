// Package links tracks the host's network devices. The package lists the devices once and then processes rtnetlink
// notifications.
package links

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/rtnl"
)

// Device is a network device other than a loopback device.
type Device struct {
	Name string
	// Master is the index of the bridge, bond or VRF that the device belongs to, or 0 if there is none.
	Master int
}

// Links tracks the network devices in one network namespace. Links is safe for concurrent use.
type Links struct {
	kernel  *netlink.Handle
	watcher *rtnl.Watcher
	contain proxiers.Contain
	ctx     context.Context // for the watcher, until Close
	end     context.CancelFunc

	mu       sync.Mutex
	watching bool
	// devices holds all devices by index, or is nil if the devices are unknown.
	devices map[int]Device
}

// Open opens a socket in the calling thread's network namespace. Links calls the function changed when a device appears
// or changes.
func Open(env proxiers.Env, changed func()) (*Links, error) {
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket: %w", err)
	}
	l := &Links{kernel: kernel, contain: env.Contain}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.watcher = rtnl.New(rtnl.Options{
		Logger: env.Logger, Topics: rtnl.Links, Note: l.processNotification, OnLoss: l.Forget,
		OnChange: changed,
	})
	return l, nil
}

// Close stops the watcher and closes the socket.
func (l *Links) Close() {
	l.end()
	l.kernel.Close()
}

// Watch starts the watcher in a goroutine that belongs to group, unless the watcher is already running.
func (l *Links) Watch(group *sync.WaitGroup) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching {
		return nil
	}
	if err := l.watcher.Open(); err != nil {
		return err
	}
	l.watching = true
	l.contain.Go(group, "device notifications", func() { l.watcher.Run(l.ctx) })
	return nil
}

// processNotification updates the device list and reports whether a notification is about a new device, or about a
// device with a new name or master. The kernel sends a notification for each change to a device. Notifications with an
// address family other than AF_UNSPEC are about bridge ports.
func (l *Links) processNotification(m *syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC {
		return false
	}
	link, err := netlink.LinkDeserialize(nil, m.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.devices == nil {
		l.devices = nil
		return true
	}
	a := link.Attrs()
	before := l.devices[a.Index]
	delete(l.devices, a.Index)
	if m.Header.Type == unix.RTM_NEWLINK {
		l.see(a)
	}
	after, there := l.devices[a.Index]
	return there && after != before
}

func (l *Links) see(a *netlink.LinkAttrs) {
	if a.Flags&net.FlagLoopback == 0 {
		l.devices[a.Index] = Device{Name: a.Name, Master: a.MasterIndex}
	}
}

// Forget discards the device list, so the next call to List queries the kernel again.
func (l *Links) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.devices = nil
}

// List returns the devices by index. The first call to List queries the kernel and takes 10 µs per device (Linux 6.18).
// Later calls return the list that the notifications keep up to date. The kernel also sends notifications about devices
// that appear during the query.
func (l *Links) List() (map[int]Device, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.devices == nil {
		if err := l.queryDevices(); err != nil {
			return nil, err
		}
	}
	return maps.Clone(l.devices), nil
}

// queryDevices fetches the device list from the kernel. The caller must hold mu.
func (l *Links) queryDevices() error {
	all, err := rtnl.Retry(l.kernel.LinkList)
	if err != nil {
		return fmt.Errorf("list network devices: %w", err)
	}
	l.devices = map[int]Device{}
	for _, link := range all {
		l.see(link.Attrs())
	}
	return nil
}
