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

const pollInterval = time.Second

// getInfo is the value of IPT_SO_GET_INFO and IP6T_SO_GET_INFO in the kernel's headers.
const getInfo = 64

// tableInfo is the kernel's struct ipt_getinfo, which has the same layout as struct ip6t_getinfo.
type tableInfo struct {
	name             [32]byte
	validHooks       uint32
	hookEntry        [5]uint32
	underflow        [5]uint32
	numEntries, size uint32
}

type observation struct {
	tableInfo
	// ownEntries is the number of Edgeway's entries in the table, and is valid only if entriesKnown is true.
	ownEntries   int
	entriesKnown bool
}

// pollWatcher is the Watcher for iptables-legacy tables, about which the kernel sends no notifications. For each table,
// a pollWatcher compares the size, the number of entries and the offsets of the built-in chains with the values after
// Edgeway's last restore. The comparison copies no rules from the kernel: with 5,000 Services, polling the four tables
// takes 12 µs of CPU time per second (Linux 6.18). A pollWatcher reads a table's rules (0.11 s of CPU time for nat)
// only if the size, the number of entries or an offset differs.
//
// While a restore waits for the iptables programs' lock, another program may change the table. A pollWatcher therefore
// also compares the change in the number of entries with the number of entries that Edgeway wrote.
//
// A pollWatcher does not detect a change that keeps the size, the number of entries and the offsets, such as replacing
// a rule with another rule of the same size in the same chain. The periodic full sync reverts undetected changes.
type pollWatcher struct {
	Options
	closed chan struct{}

	mu sync.Mutex
	// socket belongs to the network namespace of the thread that created it. socket is -1 after Close.
	socket int
	// lastStates maps each iptables table to the last state in which the table matched Edgeway's rules. At the start of
	// a full sync, Forget stores each table's current state instead. If a table does not exist when the full sync
	// starts, lastStates omits the table until Edgeway writes it, because a query for a missing table causes the kernel
	// to load the table's module.
	lastStates map[Table]observation
	// reported is true from the time that the pollWatcher reports drift until the next full sync calls Forget.
	reported bool
}

func newPollWatcher(o Options) (*pollWatcher, error) {
	// Any IPv6 socket except a raw socket also accepts IPv4 socket options. The socket's protocol does not matter.
	domain := unix.AF_INET
	if slices.ContainsFunc(o.Tables, func(t Table) bool { return t.Family == plan.IPv6 }) {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return &pollWatcher{Options: o, socket: fd, lastStates: map[Table]observation{}, closed: make(chan struct{})}, nil
}

func (p *pollWatcher) Run() {
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

func (p *pollWatcher) look() (reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inspect(p.changedTables())
}

func (p *pollWatcher) RunCommit(_ int, _ bool, commit func() error) error {
	reason, err := p.commit(commit)
	if reason != "" {
		p.Notify(reason)
	}
	return err
}

// commit detects changes that other programs made before the restore, but reads the changed tables only after the
// restore, so that the restore starts without delay.
func (p *pollWatcher) commit(commit func() error) (reason string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	suspects, was := p.changedTables(), map[Table]int{}
	for _, t := range p.Tables {
		was[t], _ = p.Entries(t)
	}
	if err := commit(); err != nil {
		return "", err
	}
	for _, t := range p.Tables {
		if ours, settled := p.Entries(t); settled && ours != was[t] &&
			p.hadNoEffect(t, ours, slices.Contains(suspects, t)) {
			return "", netlink.ErrNoEffect
		}
		if !slices.Contains(suspects, t) && !p.observe(t) {
			suspects = append(suspects, t)
		}
	}
	return p.inspect(suspects), nil
}

// hadNoEffect reports whether a seemingly successful restore left the table unchanged. The parameter ours is the
// minimum number of entries in the table after a restore. If suspect is true, another program changed the table before
// the restore. An unchanged state then proves nothing, so hadNoEffect checks only the number of entries.
func (p *pollWatcher) hadNoEffect(t Table, ours int, suspect bool) bool {
	now, _ := p.read(t)
	return int(now.numEntries) < ours || !suspect && p.lastStates[t].entriesKnown && now == p.lastStates[t].tableInfo
}

// observe records a table's state after a restore, unless the number of entries shows that another program also changed
// the table. observe also returns true if the table does not exist and Edgeway never wrote it.
func (p *pollWatcher) observe(t Table) (plausible bool) {
	before, written := p.lastStates[t]
	now, err := p.read(t)
	if err != nil {
		return !written
	}
	ours, settled := p.Entries(t)
	if settled && before.entriesKnown && int(now.numEntries)-int(before.numEntries) != ours-before.ownEntries {
		return false
	}
	p.lastStates[t] = observation{now, ours, settled}
	return true
}

// changedTables returns the tables whose state differs from lastStates, including tables that no longer exist.
func (p *pollWatcher) changedTables() (suspects []Table) {
	if p.reported || p.socket < 0 {
		return nil
	}
	for t, known := range p.lastStates {
		if now, err := p.read(t); err != nil || now != known.tableInfo {
			suspects = append(suspects, t)
		}
	}
	return suspects
}

// inspect reads the contents of the suspect tables. For an intact table, inspect records the state that the table had
// before the read, so that the pollWatcher detects a change during the read. inspect skips a table if the number of
// Edgeway's entries in the table is unknown, and the table remains suspect.
func (p *pollWatcher) inspect(suspects []Table) (reason string) {
	for _, t := range suspects {
		ours, settled := p.Entries(t)
		if !settled {
			continue
		}
		now, _ := p.read(t)
		if reason := p.Compare(t); reason != "" {
			p.reported = true
			return reason
		}
		p.lastStates[t] = observation{now, ours, true}
	}
	return ""
}

// Forget records the current state of the tables, which the full sync is about to read.
func (p *pollWatcher) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reported = false
	for _, t := range p.Tables {
		// Only root may read the list of tables. Without root privileges, the pollWatcher does not detect a change
		// before the first restore.
		present, _ := xtables.Tables(xtables.Legacy, t.Family)
		if _, written := p.lastStates[t]; !written && !slices.Contains(present, t.Name) {
			continue
		}
		if now, err := p.read(t); err == nil {
			p.lastStates[t] = observation{tableInfo: now}
		}
	}
}

// read returns a table's state. If the table does not exist, the query causes the kernel to load the table's module.
// read returns ENOENT or ENOPROTOOPT if the table still does not exist.
func (p *pollWatcher) read(t Table) (info tableInfo, err error) {
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

func (p *pollWatcher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.closed)
	fd := p.socket
	p.socket = -1
	return os.NewSyscallError("close", unix.Close(fd))
}
