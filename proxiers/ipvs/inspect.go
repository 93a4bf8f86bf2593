package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/moby/ipvs"

	"edgeway/proxiers/plan"
)

// IPVS sends no notifications, so the watcher polls it.
const (
	// shortPollInterval is the time between two short polls. A short poll reads the endpoints of some servers. To
	// detect `ipvsadm -C`, a short poll also reads one server for each family.
	shortPollInterval = time.Second
	// listInterval is the minimum time between two requests for the list of all servers. After a slow request, the
	// watcher waits longer than listInterval, so the requests use at most 1 % of the time.
	listInterval    = 5 * time.Second
	listPauseFactor = 100
	// maxServersPerPoll and maxPollTime limit the number of servers whose endpoints a short poll reads. Successive
	// polls cover all servers.
	maxServersPerPoll = 32
	maxPollTime       = 10 * time.Millisecond
)

type inspected interface {
	find(key) (f found, there bool, err error)
	list() (map[key]found, error)
	endpoints(*ipvs.Service) (map[netip.AddrPort]int, error)
}

// pollState holds the state of watcher.poll. Only the goroutine that runs poll uses a pollState.
type pollState struct {
	// nextList is the time when the watcher next lists all servers. queue holds the servers whose endpoints the watcher
	// reads next.
	nextList time.Time
	queue    []located
}

type located struct {
	key
	raw *ipvs.Service
}

func (w *watcher) poll(ctx context.Context) {
	tick := time.NewTicker(shortPollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if what := w.inspect(); what != "" {
			w.drift(what)
		}
	}
}

// inspect describes the first difference between the kernel's servers and the servers that Apply wrote, or returns ""
// if all servers match. After reporting a difference, inspect returns "" until the next Apply.
func (w *watcher) inspect() (what string) {
	w.mu.Lock()
	phase, complete := w.phase, w.complete && !w.busy
	canaries := make([]key, 0, len(w.sampleServers))
	for _, k := range w.sampleServers {
		canaries = append(canaries, k)
	}
	w.mu.Unlock()
	if !complete {
		return ""
	}
	what = w.inspectServers(canaries)
	if what == "" && !time.Now().Before(w.nextList) {
		what = w.compareServers()
	}
	if what == "" {
		what = w.compareEndpoints()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase != phase {
		return "" // Apply ran in the meantime and may have caused the difference
	}
	w.complete = what == ""
	return what
}

// inspectServers describes the first server that another program removed or changed, or returns "" if all servers
// match.
func (w *watcher) inspectServers(servers []key) string {
	for _, k := range servers {
		f, there, err := w.ipvs.find(k)
		if what := describeChange(k, f, there); err == nil && what != "" {
			return what
		}
	}
	return ""
}

// compareServers lists all servers and describes the first difference from w.servers, or returns "" if all servers
// match.
func (w *watcher) compareServers() string {
	began := time.Now()
	have, err := w.ipvs.list()
	w.nextList = time.Now().Add(max(listInterval, listPauseFactor*time.Since(began)))
	if err != nil {
		return err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, want := range w.servers {
		f, there := have[k]
		if what := describeChange(k, f, there); what != "" {
			return what
		}
		if f.raw.SchedName != want.scheduler {
			return fmt.Sprintf("%s has the scheduler %s", k, f.raw.SchedName)
		}
	}
	again := len(w.queue) == 0
	for k, f := range have {
		_, wanted := w.servers[k]
		if f.own && !wanted {
			return fmt.Sprintf("%s was added", k)
		}
		if again && wanted {
			w.queue = append(w.queue, located{k, f.raw})
		}
	}
	return ""
}

// describeChange says whether a server was removed or changed, or returns "" if neither happened.
func describeChange(k key, f found, there bool) string {
	switch {
	case !there:
		return fmt.Sprintf("%s was removed", k)
	case !f.own:
		return fmt.Sprintf("%s was changed", k)
	}
	return ""
}

// compareEndpoints reads the endpoints of the servers in w.queue and describes the first difference from the wanted
// endpoints, or returns "" if all endpoints match.
func (w *watcher) compareEndpoints() string {
	began := time.Now()
	for range maxServersPerPoll {
		if len(w.queue) == 0 || time.Since(began) > maxPollTime {
			return ""
		}
		next := w.queue[0]
		w.queue = w.queue[1:]
		have, err := w.ipvs.endpoints(next.raw)
		if err != nil {
			continue // compareServers reports missing servers
		}
		w.mu.Lock()
		want, known := w.servers[next.key]
		w.mu.Unlock()
		if known && !want.has(have) {
			return cmp.Or(w.inspectServers([]key{next.key}), fmt.Sprintf("the endpoints of %s were changed", next.key))
		}
	}
	return ""
}

func (w wanted) has(endpoints map[netip.AddrPort]int) bool {
	for _, e := range w.endpoints {
		if have, there := endpoints[e.Addr]; !there || have != weight(e) {
			return false
		}
	}
	for a := range endpoints {
		if _, wanted := plan.FindEndpoint(w.endpoints, a); !wanted {
			return false
		}
	}
	return true
}
