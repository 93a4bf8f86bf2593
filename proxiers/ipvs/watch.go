package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// glance is how often the kernel is asked for a virtual server: IPVS tells nobody of changes. It costs one question and one answer for
// each family.
const glance = time.Second

// watch notices when others remove virtual servers, routes or rules.
type watch struct {
	drift  func(string)
	kernel *kernel
	socket *nl.NetlinkSocket
	done   chan struct{}
	wait   sync.WaitGroup

	mu sync.Mutex
	// uses counts the servers at each address that has, or shall have, a route.
	uses map[netip.Addr]int
	// canaries stand for all servers of their family. One that is gone is drift, once.
	canaries map[bool]key
}

// newWatch has a socket of its own for questions, as one is for one goroutine.
func newWatch(drift func(string)) (*watch, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		k.Close()
		return nil, fmt.Errorf("subscribe to rtnetlink: %w", err)
	}
	_ = socket.SetReceiveBufferSize(1<<20, true) // without CAP_NET_ADMIN the default has to do
	w := &watch{drift: drift, kernel: k, socket: socket, done: make(chan struct{})}
	w.forget()
	w.wait.Go(w.listen)
	w.wait.Go(w.look)
	return w, nil
}

func (w *watch) close() {
	close(w.done)
	w.socket.Close() // ends listen
	w.wait.Wait()
	w.kernel.Close()
}

// forget says that nothing is known to be there.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uses, w.canaries = map[netip.Addr]int{}, map[bool]key{}
}

// remember says what is there.
func (w *watch) remember(want map[key]wanted) { w.move(nil, want) }

// move brings up to date what is there, before it is removed, and gives the addresses that came and that went.
func (w *watch) move(old, next map[key]wanted) (fresh, gone []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range next {
		if _, known := old[k]; known {
			continue
		}
		a := k.at.Addr()
		if w.uses[a]++; w.uses[a] == 1 {
			fresh = append(fresh, a)
		}
		w.canaries[a.Is4()] = k
	}
	for k := range old {
		if _, stays := next[k]; stays {
			continue
		}
		a := k.at.Addr()
		if w.uses[a]--; w.uses[a] == 0 {
			delete(w.uses, a)
			gone = append(gone, a)
		}
		if w.canaries[a.Is4()] == k {
			delete(w.canaries, a.Is4())
		}
	}
	return fresh, gone
}

// look asks for the canaries until it is closed.
func (w *watch) look() {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-tick.C:
		}
		if at, gone := w.ask(); gone {
			w.drift(fmt.Sprintf("virtual server %s/%s was removed", at.at, at.proto))
		}
	}
}

func (w *watch) ask() (at key, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for family, k := range w.canaries {
		s, err := w.kernel.GetService(request(k, ""))
		if errors.Is(err, unix.ESRCH) || err == nil && !isOwn(s) {
			delete(w.canaries, family)
			return k, true
		}
	}
	return key{}, false
}

// listen runs until the socket is closed.
func (w *watch) listen() {
	for {
		messages, _, err := w.socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.drift("notices of routes were lost")
		case err != nil:
			select {
			case <-w.done:
				return
			case <-time.After(glance):
				w.drift("notices of routes cannot be read: " + err.Error())
			}
		}
		for i := range messages {
			if what := w.lost(&messages[i]); what != "" {
				w.drift(what)
			}
		}
	}
}

// lost names what a message says was taken away of what is ours.
func (w *watch) lost(m *syscall.NetlinkMessage) string {
	switch m.Header.Type {
	case unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg || m.Data[4] != table || m.Data[5] != protocol {
			return ""
		}
		attrs, _ := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
		for _, attr := range attrs {
			if attr.Attr.Type != unix.RTA_DST {
				continue
			}
			a, _ := netip.AddrFromSlice(attr.Value)
			w.mu.Lock()
			ours := w.uses[a] > 0
			w.mu.Unlock()
			if ours {
				return "the local route to " + a.String() + " was removed"
			}
		}
	case unix.RTM_DELRULE: // struct fib_rule_hdr has the table where struct rtmsg has it
		if len(m.Data) >= unix.SizeofRtMsg && m.Data[4] == table {
			return "the routing rule was removed"
		}
	}
	return ""
}
