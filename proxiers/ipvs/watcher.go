package ipvs

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/rtnl"
)

// watcher detects when other programs change or remove virtual servers, routes or rules.
type watcher struct {
	drift   func(string)
	ipvs    inspected
	network *rtnl.Watcher
	end     context.CancelFunc
	wait    sync.WaitGroup
	pollState

	mu sync.Mutex
	// servers holds the servers that Apply wrote last.
	servers map[key]wanted
	// complete reports whether the last Apply wrote all servers. busy reports whether Apply is running. The watcher
	// increments phase when Apply starts and when Apply returns.
	complete, busy bool
	phase          uint64
	// serverCounts counts the servers at each address. An address in serverCounts has a route, or Apply is about to add
	// one.
	serverCounts map[netip.Addr]int
	// sampleServers holds, for each family, the server that every short poll reads.
	sampleServers map[bool]key
	// removedObject describes an Edgeway route or rule that another program removed, or is "" if there is none.
	removedObject string
}

// newWatcher opens a separate socket for its requests, because only one goroutine may use a socket.
func newWatcher(env proxiers.Env) (*watcher, error) {
	k, err := openClient()
	if err != nil {
		return nil, err
	}
	w := &watcher{drift: env.Drift, ipvs: k}
	w.forget()
	w.follow(env.Logger, nil)
	if err := w.network.Open(); err != nil {
		k.Close()
		return nil, err
	}
	var ctx context.Context
	ctx, w.end = context.WithCancel(context.Background())
	env.Contain.Go(&w.wait, "route notifications", func() { w.network.Run(ctx) })
	env.Contain.Go(&w.wait, "watch over servers", func() {
		w.poll(ctx)
		k.Close()
	})
	return w, nil
}

func (w *watcher) follow(logger *slog.Logger, from rtnl.Kernel) {
	w.network = rtnl.New(rtnl.Options{
		Logger: logger, Kernel: from, Topics: rtnl.Routes | rtnl.Rules,
		Note:     w.processNotification,
		OnLoss:   func() { w.missed("the kernel dropped route notifications") },
		OnChange: w.report,
	})
}

func (w *watcher) close() {
	w.end()
	w.wait.Wait()
}

func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = true
	w.phase++
}

// finish records that Apply has returned. complete reports whether the kernel has all servers.
func (w *watcher) finish(complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.complete = false, complete
	w.phase++
}

// forget records that the servers and routes in the kernel are unknown.
func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serverCounts, w.sampleServers = map[netip.Addr]int{}, map[bool]key{}
}

func (w *watcher) remember(want map[key]wanted) {
	w.mu.Lock()
	w.servers = map[key]wanted{}
	w.mu.Unlock()
	w.replaceServers(nil, want)
}

// hasWritten reports whether Edgeway has written the server. Another program may since have removed Edgeway's mark from
// the server.
func (w *watcher) hasWritten(k key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, made := w.servers[k]
	return made
}

// replaceServers records the servers of the next plan before Apply removes old servers, and returns the added and
// removed addresses.
func (w *watcher) replaceServers(old, next map[key]wanted) (fresh, gone []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, server := range next {
		w.servers[k] = server
		if _, known := old[k]; known {
			continue
		}
		a := k.at.Addr()
		if w.serverCounts[a]++; w.serverCounts[a] == 1 {
			fresh = append(fresh, a)
		}
		w.sampleServers[a.Is4()] = k
	}
	for k := range old {
		if _, stays := next[k]; stays {
			continue
		}
		delete(w.servers, k)
		a := k.at.Addr()
		if w.serverCounts[a]--; w.serverCounts[a] == 0 {
			delete(w.serverCounts, a)
			gone = append(gone, a)
		}
		if w.sampleServers[a.Is4()] == k {
			delete(w.sampleServers, a.Is4())
		}
	}
	return fresh, gone
}

// processNotification reports whether a notification is about the removal of an Edgeway route or rule.
func (w *watcher) processNotification(m *syscall.NetlinkMessage) bool {
	what := w.describeRemoval(m)
	if what != "" {
		w.missed(what)
	}
	return what != ""
}

func (w *watcher) missed(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removedObject = what
}

func (w *watcher) report() {
	w.mu.Lock()
	what := w.removedObject
	w.removedObject = ""
	w.mu.Unlock()
	if what != "" {
		w.drift(what)
	}
}

// describeRemoval describes the Edgeway route or rule that a notification reports as removed, or returns "" if the
// notification is about another change.
func (w *watcher) describeRemoval(m *syscall.NetlinkMessage) string {
	switch m.Header.Type {
	case unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg || m.Data[4] != RouteTable || m.Data[5] != routeProtocol {
			return ""
		}
		attrs, _ := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
		for _, attr := range attrs {
			if attr.Attr.Type != unix.RTA_DST {
				continue
			}
			a, _ := netip.AddrFromSlice(attr.Value)
			w.mu.Lock()
			ours := w.serverCounts[a] > 0
			w.mu.Unlock()
			if ours {
				return "the local route to " + a.String() + " was removed"
			}
		}
	case unix.RTM_DELRULE: // the routing table has the same offset in struct fib_rule_hdr as in struct rtmsg
		if len(m.Data) >= unix.SizeofRtMsg && m.Data[4] == RouteTable {
			return "Edgeway's routing rule was removed"
		}
	}
	return ""
}
