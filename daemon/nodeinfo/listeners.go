package nodeinfo

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
		w.announce()
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
	for _, table := range []struct {
		file     string
		protocol plan.Protocol
	}{{"tcp", plan.TCP}, {"tcp6", plan.TCP}, {"udp", plan.UDP}, {"udp6", plan.UDP}} {
		// Of the thread: its network namespace may be another one than the process's.
		file, err := os.Open("/proc/thread-self/net/" + table.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list of sockets: %w", err)
		}
		of, err := parseSockets(file, table.protocol)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("list of sockets %s: %w", table.file, err)
		}
		found = append(found, of...)
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

// The states of linux/net/tcp_states.h, as /proc/net has them.
const (
	stateListen      = "0A"
	stateUnconnected = "07"
)

// parseSockets reads proc_net_tcp(5) or its like for UDP. Listening TCP sockets come first, so that the thousands of
// connections of a busy host are not read.
func parseSockets(from io.Reader, protocol plan.Protocol) (out []socket, err error) {
	lines := bufio.NewScanner(from)
	lines.Scan() // the heading
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			return nil, fmt.Errorf("line %.100q is not one of a socket", lines.Text())
		}
		if protocol == plan.TCP && f[3] != stateListen {
			break
		}
		if protocol == plan.UDP && f[3] != stateUnconnected {
			continue
		}
		at, err := parseSocketAddr(f[1])
		inode, err2 := strconv.ParseUint(f[9], 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		out = append(out, socket{Listener{protocol, at}, inode})
	}
	return out, lines.Err()
}

// parseSocketAddr reads "0100007F:1F90": words in the order of the processor's bytes, and the port.
func parseSocketAddr(s string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(words)
	number, err2 := strconv.ParseUint(port, 16, 16)
	if err := errors.Join(err, err2); err != nil {
		return netip.AddrPort{}, fmt.Errorf("address of a socket: %w", err)
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address of a socket: %.40q has %d bytes", s, len(raw))
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), nil
}
