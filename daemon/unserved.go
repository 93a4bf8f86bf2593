package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"edgeway/daemon/health"
	"edgeway/proxiers"
)

// unserved are the servers of the daemon itself that do not serve, by their key in the configuration.
type unserved struct {
	mu   sync.Mutex
	down map[string]proxiers.Waiting
}

// note notes why the server of a key is down; nil: it serves.
func (u *unserved) note(key, address string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		delete(u.down, key)
		return
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // the address is told by itself
	}
	at, failed := netip.ParseAddrPort(address)
	if failed != nil {
		at, _ = netip.ParseAddrPort("[::]" + address) // ":10256"
	}
	if u.down == nil {
		u.down = map[string]proxiers.Waiting{}
	}
	u.down[key] = proxiers.Waiting{Address: at, Service: key, Err: err}
}

func (u *unserved) waiting() []proxiers.Waiting {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.SortedFunc(maps.Values(u.down), func(a, b proxiers.Waiting) int { return cmp.Compare(a.Service, b.Service) })
}

// maxPorts bounds the conditions of ports; the notListening of edgeway status --json has all.
const maxPorts = 10

// portConditions name ports that are not served. Connections to those of Services fail; those of the daemon itself tell of
// them alone.
func portConditions(services, own []proxiers.Waiting) (out []health.Condition) {
	for i, w := range slices.Concat(services, own) {
		level := health.Problem
		if i >= len(services) {
			level = health.Warning
		}
		if len(out) == maxPorts && level == health.Problem {
			continue
		}
		c := health.Condition{Name: "ports", Level: level, Mend: "ss -tlnp  # shows which program listens there: stop it, or change the port"}
		c.Message = fmt.Sprintf("%s of %s is not served: %v", w.Address, w.Service, w.Err)
		if more := len(services) - maxPorts; i == maxPorts-1 && more > 0 {
			c.Message += fmt.Sprintf("; and neither are %d more", more)
		}
		out = append(out, c)
	}
	return out
}
