package watch

import (
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// pollInterval is the time between two polls.
const pollInterval = time.Second

// getInfo is both IPT_SO_GET_INFO and IP6T_SO_GET_INFO of the kernel's linux/netfilter_ipv4/ip_tables.h.
const getInfo = 64

// tableInfo is the kernel's struct ipt_getinfo, which equals struct ip6t_getinfo.
type tableInfo struct {
	name             [32]byte
	validHooks       uint32
	hookEntry        [5]uint32
	underflow        [5]uint32
	numEntries, size uint32
}

// observation is the state of a table at one point in time.
type observation struct {
	tableInfo
	// ours is the number of entries that belonged to Edgeway. settled reports whether the number was known.
	ours    int
	settled bool
}

// poll is the Watcher for iptables-legacy, where the kernel sends no notices. poll compares each table's number of
// entries, size and positions of built-in chains with their values after Edgeway's last restore. The kernel copies no
// rules for this comparison: the four tables of 5,000 Services take 12 µs of CPU each second (Linux 6.18). poll reads
// the table (0.11 s of CPU for nat) only if these values differ.
//
// A restore may wait seconds for the lock of the iptables programs, while another program changes the table. So poll
// also compares the change in the number of entries with the number of entries that Edgeway wrote.
//
// poll does not detect a change that keeps all these values: a rule replaced by another of the same size in the same
// chain, or a change and its opposite elsewhere within a second. The periodic full sync corrects such changes.
type poll struct {
	Options
	closed chan struct{}

	mu sync.Mutex
	// socket stays in the network namespace of the thread that created it. socket is -1 after Close.
	socket int
	// known holds the last state of each table that matched the rules that Edgeway wrote, or the state at the start
	// of a full sync. known omits a table that did not exist at the start of the full sync until Edgeway writes the
	// table, because a poll would make the kernel load the table's module.
	known map[Table]observation
	// reported is set from a report of drift until the next full sync.
	reported bool
}

func newPoll(o Options) (*poll, error) {
	// An IPv6 socket that is not raw also accepts the options of IPv4. The protocol of the socket does not matter.
	domain := unix.AF_INET
	if slices.ContainsFunc(o.Tables, func(t Table) bool { return t.Family == plan.IPv6 }) {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return &poll{Options: o, socket: fd, known: map[Table]observation{}, closed: make(chan struct{})}, nil
}

// Run implements Watcher.
func (p *poll) Run() {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.closed:
			return
		case <-tick.C:
		}
		if reason := p.look(); reason != "" {
			p.Notify(reason)
		}
	}
}

func (p *poll) look() (reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inspect(p.changed())
}

// Own implements Watcher.
func (p *poll) Own(_ int, _ bool, commit func() error) error {
	reason, err := p.commit(commit)
	if reason != "" {
		p.Notify(reason)
	}
	return err
}

// commit detects changes by other programs before a restore, but reads the changed tables after the restore, so that
// the restore does not wait.
func (p *poll) commit(commit func() error) (reason string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	suspects, was := p.changed(), map[Table]int{}
	for _, t := range p.Tables {
		was[t], _ = p.Entries(t)
	}
	if err := commit(); err != nil {
		return "", err
	}
	for _, t := range p.Tables {
		if ours, settled := p.Entries(t); settled && ours != was[t] &&
			p.untouched(t, ours, slices.Contains(suspects, t)) {
			return "", netlink.ErrNoEffect
		}
		if !slices.Contains(suspects, t) && !p.observe(t) {
			suspects = append(suspects, t)
		}
	}
	return p.inspect(suspects), nil
}

// untouched reports whether the restore that just succeeded cannot have changed the table. After a successful
// restore, the table must hold at least ours entries. A suspect table, which another program changed before, may have
// returned to its known state.
func (p *poll) untouched(t Table, ours int, suspect bool) bool {
	now, _ := p.read(t)
	return int(now.numEntries) < ours || !suspect && p.known[t].settled && now == p.known[t].tableInfo
}

// observe records the state of a table after a restore, unless the restore alone cannot have led to this state. A
// table that Edgeway never wrote need not exist.
func (p *poll) observe(t Table) (plausible bool) {
	before, written := p.known[t]
	now, err := p.read(t)
	if err != nil {
		return !written
	}
	ours, settled := p.Entries(t)
	if settled && before.settled && int(now.numEntries)-int(before.numEntries) != ours-before.ours {
		return false
	}
	p.known[t] = observation{now, ours, settled}
	return true
}

// changed returns the tables whose state differs from the known state. A table that no longer exists always differs.
func (p *poll) changed() (suspects []Table) {
	if p.reported || p.socket < 0 {
		return nil
	}
	for t, known := range p.known {
		if now, err := p.read(t); err != nil || now != known.tableInfo {
			suspects = append(suspects, t)
		}
	}
	return suspects
}

// inspect reads the contents of suspects. For an intact table, inspect records the state before the reading as known,
// so that poll detects a later change. A table that is not settled remains suspect.
func (p *poll) inspect(suspects []Table) (reason string) {
	for _, t := range suspects {
		ours, settled := p.Entries(t)
		if !settled {
			continue
		}
		now, _ := p.read(t)
		if reason := p.Intact(t); reason != "" {
			p.reported = true
			return reason
		}
		p.known[t] = observation{now, ours, true}
	}
	return ""
}

// Forget implements Watcher. Forget records the current state of the tables, which the full sync is about to read.
func (p *poll) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reported = false
	for _, t := range p.Tables {
		// Only root may read the list. Without root privileges, poll does not detect a change before the first restore.
		present, _ := xtables.Tables(xtables.Legacy, t.Family)
		if _, written := p.known[t]; !written && !slices.Contains(present, t.Name) {
			continue
		}
		if now, err := p.read(t); err == nil {
			p.known[t] = observation{tableInfo: now}
		}
	}
}

// read returns the current state of a table. The error is ENOENT or ENOPROTOOPT if the table does not exist even
// after the kernel has tried to load its module.
func (p *poll) read(t Table) (info tableInfo, err error) {
	level := unix.SOL_IP
	if t.Family == plan.IPv6 {
		level = unix.SOL_IPV6
	}
	copy(info.name[:], t.Name)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(p.socket), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return tableInfo{}, os.NewSyscallError("getsockopt", errno)
	}
	return info, nil
}

// Close implements Watcher.
func (p *poll) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.closed)
	fd := p.socket
	p.socket = -1
	return os.NewSyscallError("close", unix.Close(fd))
}
