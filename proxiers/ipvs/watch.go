package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/rtnl"
)

// glance is the time between two questions for a virtual server: IPVS sends no notices of changes. It costs one question and one answer
// for each family.
const glance = time.Second

// watch notices when other programs remove virtual servers, routes or rules.
type watch struct {
	drift   func(string)
	kernel  *kernel
	network *rtnl.Watcher
	end     context.CancelFunc
	wait    sync.WaitGroup

	mu sync.Mutex
	// uses counts the servers at each address that has, or shall have, a route.
	uses map[netip.Addr]int
	// canaries stand for all servers of their family. One that is gone is drift, once.
	canaries map[bool]key
	// removed says what was removed of our routes and rules; "" if nothing was.
	removed string
}

// newWatch has a socket of its own for questions, because a socket serves one goroutine.
func newWatch(logger *slog.Logger, drift func(string)) (*watch, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	w := &watch{drift: drift, kernel: k}
	w.forget()
	w.follow(logger, nil)
	if err := w.network.Open(); err != nil {
		k.Close()
		return nil, err
	}
	var ctx context.Context
	ctx, w.end = context.WithCancel(context.Background())
	w.wait.Go(func() { w.network.Run(ctx) })
	w.wait.Go(func() { w.look(ctx) })
	return w, nil
}

// follow prepares to listen for routes and rules.
func (w *watch) follow(logger *slog.Logger, from rtnl.Kernel) {
	w.network = rtnl.New(rtnl.Options{
		Logger: logger, Kernel: from, Topics: rtnl.Routes | rtnl.Rules,
		Note:    w.note,
		Lost:    func() { w.missed("notices of routes were lost") },
		Changed: w.report,
	})
}

func (w *watch) close() {
	w.end()
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

// look asks for the canaries until ctx ends.
func (w *watch) look(ctx context.Context) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
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

// note takes a notice and reports whether it says that something of ours was removed.
func (w *watch) note(m *syscall.NetlinkMessage) bool {
	what := w.lost(m)
	if what != "" {
		w.missed(what)
	}
	return what != ""
}

func (w *watch) missed(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removed = what
}

// report reports what was removed.
func (w *watch) report() {
	w.mu.Lock()
	what := w.removed
	w.removed = ""
	w.mu.Unlock()
	if what != "" {
		w.drift(what)
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
