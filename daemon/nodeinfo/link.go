package nodeinfo

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

type link struct {
	index int
	name  string
	kind  string // kind is the kind that ip-link(8) prints, or "" for physical interfaces
	up    bool
	// direct reports whether the interface, like a tunnel, sends packets without a neighbor's link-layer address.
	direct   bool
	loopback bool
}

// parseLink parses an rtnetlink message about an interface: struct ifinfomsg and attributes.
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

const (
	dummy  = "dummy"
	bridge = "bridge"
)

// isTunnel reports whether packets that are routed to the interface always go to another host.
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

// foreign holds the interfaces whose addresses are not the host's own.
type foreign struct {
	names []string

	mu      sync.Mutex
	indexes map[int]struct{}
}

func newForeign(names []string) *foreign {
	return &foreign{names: names, indexes: map[int]struct{}{}}
}

// note records the name and the index of an interface, and reports whether the interface is foreign.
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

func (f *foreign) has(index int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.indexes[index]
	return ok
}

// relevant reports whether a message may change Host. relevant returns false for messages about foreign interfaces,
// rules, settings, and routes that Host omits. On a router, the kernel may send thousands of such messages per
// second.
func (w *Watcher) relevant(messageType uint16, data []byte) bool {
	f := w.foreign
	switch messageType {
	case unix.RTM_NEWLINK:
		l, ok := parseLink(data)
		had := f.has(l.index)
		return !ok || !f.note(l) || !had // the interface may have been renamed
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		// In struct ifaddrmsg of rtnetlink(7), the index of the interface is at byte 4.
		return len(data) < unix.SizeofIfAddrmsg || !f.has(int(binary.NativeEndian.Uint32(data[4:])))
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return w.routes.relevant(data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return false
	}
	return true
}
