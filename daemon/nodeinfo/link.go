package nodeinfo

import (
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// links holds the interfaces that are up and not ignored, keyed by index.
type links map[int]link

type link struct {
	name string
	kind string // kind is the kind that ip-link(8) prints, or "device" for physical interfaces
	// direct reports whether the interface sends packets without resolving link-layer addresses, as a tunnel does.
	direct   bool
	loopback bool
}

const (
	dummy  = "dummy"
	bridge = "bridge"
)

// isTunnel reports whether packets that leave through the interface always go to another host.
func (l link) isTunnel() bool { return l.direct && !l.loopback && l.kind != dummy }

func listLinks(ignored []string) (up links, steady bool, err error) {
	found, steady, err := retry(netlink.LinkList)
	if err != nil {
		return nil, false, fmt.Errorf("list of interfaces: %w", err)
	}
	up = links{}
	for _, l := range found {
		if a := l.Attrs(); a.Flags&net.FlagUp != 0 && !slices.Contains(ignored, a.Name) {
			direct := a.RawFlags&(unix.IFF_POINTOPOINT|unix.IFF_NOARP) != 0
			up[a.Index] = link{a.Name, l.Type(), direct, a.Flags&net.FlagLoopback != 0}
		}
	}
	return up, steady, nil
}
