package nodeinfo

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// link is what is read of an interface.
type link struct {
	index int
	name  string
	kind  string // as in ip-link(8); empty for physical ones
	up    bool
	// direct says that the interface needs no address of a neighbor, as a tunnel.
	direct bool
	// loopback says that the interface is a loopback device.
	loopback bool
}

// parseLink reads a message of rtnetlink about an interface: struct ifinfomsg and attributes.
func parseLink(message []byte) (out link, ok bool) {
	if len(message) < unix.SizeofIfInfomsg {
		return link{}, false
	}
	info := nl.DeserializeIfInfomsg(message)
	out = link{
		index: int(info.Index), up: info.Flags&unix.IFF_UP != 0, loopback: info.Flags&unix.IFF_LOOPBACK != 0,
		direct: info.Flags&(unix.IFF_POINTOPOINT|unix.IFF_NOARP) != 0,
	}
	attrs, err := nl.ParseRouteAttr(message[unix.SizeofIfInfomsg:])
	if err != nil {
		return link{}, false
	}
	for _, a := range attrs {
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.IFLA_IFNAME:
			out.name = unix.ByteSliceToString(a.Value)
		case unix.IFLA_LINKINFO:
			out.kind = kindOf(a.Value)
		}
	}
	return out, out.name != ""
}

// The kinds of ip-link(8) that matter here.
const (
	dummy  = "dummy"
	bridge = "bridge"
)

// isTunnel reports whether whatever is routed to the interface goes to another host.
func (l link) isTunnel() bool { return l.direct && !l.loopback && l.kind != dummy }

func kindOf(linkInfo []byte) string {
	attrs, err := nl.ParseRouteAttr(linkInfo)
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_INFO_KIND {
			return unix.ByteSliceToString(a.Value)
		}
	}
	return ""
}

// foreign are the interfaces whose addresses are not the host's own.
type foreign struct {
	names []string

	mu      sync.Mutex
	indexes map[int]struct{}
}

func newForeign(names []string) *foreign {
	return &foreign{names: names, indexes: map[int]struct{}{}}
}

// note takes what is known of an interface, and reports whether it is foreign.
func (f *foreign) note(l link) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.names, l.name) {
		delete(f.indexes, l.index)
		return false
	}
	f.indexes[l.index] = struct{}{}
	return true
}

// has reports whether the interface of this index is foreign.
func (f *foreign) has(index int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.indexes[index]
	return ok
}

// relevant leaves out what happens to foreign interfaces, the routes that Host has nothing of, of which a router may
// see thousands a second, and whatever else Host has nothing of.
func (w *Watcher) relevant(messageType uint16, data []byte) bool {
	f := w.foreign
	switch messageType {
	case unix.RTM_NEWLINK:
		l, ok := parseLink(data)
		had := f.has(l.index)
		return !ok || !f.note(l) || !had // it may have got its name now
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		// struct ifaddrmsg of rtnetlink(7): the index of the interface is at byte 4.
		return len(data) < unix.SizeofIfAddrmsg || !f.has(int(binary.NativeEndian.Uint32(data[4:])))
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return w.routes.relevant(data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return false
	}
	return true
}
