package nodeinfo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// listenersPeriod is how often the listeners are read: no event tells of them.
const listenersPeriod = 20 * time.Second

// listenersAge is how old the listeners may be that Latest gives.
const listenersAge = time.Second

// sockets reads who listens.
type sockets struct {
	mu sync.Mutex
	// foreign says of each listening socket whether it is another program's.
	foreign map[uint64]bool
	last    []Listener
	at      time.Time
	fault   string // that was logged
}

// Latest is Host with the listeners of this moment.
func (w *Watcher) Latest() *Host {
	w.refresh(false)
	return w.Host()
}

// refresh reads the listeners, again when they are old or in any case.
func (w *Watcher) refresh(always bool) {
	w.sockets.mu.Lock()
	defer w.sockets.mu.Unlock()
	if !always && time.Since(w.sockets.at) < listenersAge {
		return
	}
	next := *w.Host()
	next.Listeners = w.sockets.list(w.log)
	if slices.Equal(next.Listeners, w.Host().Listeners) {
		return
	}
	w.host.Store(&next)
	if always {
		tell(w.changed)
	}
}

// list reads all listeners; while that is impossible it gives the last ones.
func (s *sockets) list(log *slog.Logger) []Listener {
	found, err := s.read()
	s.at = time.Now()
	fault := ""
	if err != nil {
		fault = err.Error()
	} else {
		s.last = found
	}
	if fault != "" && fault != s.fault {
		log.Warn("ports that programs listen on cannot be read, those that are known count", "error", err)
	}
	s.fault = fault
	return s.last
}

// Listening gives the ports that programs listen on now, this one and those on loopback included, sorted.
func Listening() ([]Listener, error) {
	found, err := readSockets()
	out := make([]Listener, 0, len(found))
	for _, s := range found {
		out = append(out, s.Listener)
	}
	slices.SortFunc(out, Listener.compare)
	return slices.Compact(out), err
}

func (s *sockets) read() ([]Listener, error) {
	found, err := readSockets()
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(l socket) bool { return l.Addr.Addr().IsLoopback() })
	foreign, err := s.classify(found)
	if err != nil {
		return nil, err
	}
	var out []Listener
	for _, l := range found {
		if foreign[l.inode] {
			out = append(out, l.Listener)
		}
	}
	slices.SortFunc(out, Listener.compare)
	return slices.Compact(out), nil
}

// readSockets gives the listening sockets of the network namespace.
func readSockets() ([]socket, error) {
	var found []socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
			of, err := dumpSockets(family, p)
			if errors.Is(err, unix.ENOENT) {
				err = fmt.Errorf("%w (load the kernel modules tcp_diag and udp_diag)", err)
			}
			if err != nil {
				return nil, fmt.Errorf("list of %s sockets: %w", p, err)
			}
			found = append(found, of...)
		}
	}
	return found, nil
}

// classify says which sockets are other programs'. This process's are looked up only when there is a new one: it may
// have thousands.
func (s *sockets) classify(found []socket) (map[uint64]bool, error) {
	known := func(l socket) bool { _, ok := s.foreign[l.inode]; return ok }
	own := map[uint64]bool{}
	if slices.ContainsFunc(found, func(l socket) bool { return !known(l) }) {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return nil, fmt.Errorf("list of own sockets: %w", err)
		}
		for _, f := range files {
			target, _ := os.Readlink("/proc/self/fd/" + f.Name()) // it may be closed by now
			if name, ok := strings.CutPrefix(target, "socket:["); ok {
				inode, _ := strconv.ParseUint(strings.TrimSuffix(name, "]"), 10, 64)
				own[inode] = true
			}
		}
	}
	next := make(map[uint64]bool, len(found))
	for _, l := range found {
		next[l.inode] = !own[l.inode]
		if known(l) {
			next[l.inode] = s.foreign[l.inode]
		}
	}
	s.foreign = next
	return next, nil
}

type socket struct {
	Listener
	inode uint64
}

// Sizes of sock_diag(7)'s messages: struct inet_diag_req_v2, struct inet_diag_msg.
const (
	diagRequest = 56
	diagMessage = 72
)

// dumpSockets asks the kernel for those sockets alone. For /proc/net/tcp it would walk over the table of all connections:
// 5 ms on an idle host with 24 GB, at each change of a Service.
func dumpSockets(family uint8, protocol plan.Protocol) (out []socket, err error) {
	request := make([]byte, diagRequest)
	request[0], request[1] = family, unix.IPPROTO_TCP
	state := unix.BPF_TCP_LISTEN
	if protocol == plan.UDP {
		request[1], state = unix.IPPROTO_UDP, unix.BPF_TCP_CLOSE // not connected
	}
	binary.NativeEndian.PutUint32(request[4:], 1<<state)
	call := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	call.AddRawData(request)
	// A socket of the thread: its network namespace may be another one than the process's.
	messages, err := call.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		l, err := parseSocket(m, protocol)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// parseSocket reads a struct inet_diag_msg: family, state, timer, retransmissions; the ports and addresses, big-endian; ...;
// the inode at its end.
func parseSocket(m []byte, protocol plan.Protocol) (socket, error) {
	if len(m) < diagMessage {
		return socket{}, fmt.Errorf("a message of %d bytes, want %d", len(m), diagMessage)
	}
	addr := netip.AddrFrom16([16]byte(m[8:24])).Unmap()
	if m[0] == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(m[8:12]))
	}
	at := netip.AddrPortFrom(addr, binary.BigEndian.Uint16(m[4:]))
	return socket{Listener{protocol, at}, uint64(binary.NativeEndian.Uint32(m[diagMessage-4:]))}, nil
}
