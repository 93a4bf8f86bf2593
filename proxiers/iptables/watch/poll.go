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

// pollInterval is how often the poll looks.
const pollInterval = time.Second

// getInfo is IPT_SO_GET_INFO of the kernel's linux/netfilter_ipv4/ip_tables.h, and IP6T_SO_GET_INFO.
const getInfo = 64

// tableInfo is the kernel's struct ipt_getinfo, and ip6t_getinfo.
type tableInfo struct {
	name             [32]byte
	validHooks       uint32
	hookEntry        [5]uint32
	underflow        [5]uint32
	numEntries, size uint32
}

// observation is what a table was like at one time.
type observation struct {
	tableInfo
	// ours is how many of the entries were ours, if that was settled.
	ours    int
	settled bool
}

// poll is the Watcher of iptables-legacy, where the kernel tells nobody of a change. It looks at each table's
// number of entries, size and places of built-in chains: the kernel copies nothing for that, and the four
// tables of 5,000 Services take 12 µs of CPU each second (Linux 6.18). Only when they are not as our last
// restore left them is the table read (0.11 s of CPU for nat).
//
// A restore of ours may wait seconds for the lock of the iptables programs, while another program changes the
// table. So the number of entries must change by what we wrote, too.
//
// What leaves all these numbers as they are is not noticed: a rule replaced by another of the same size in
// the same chain, or a change and its opposite elsewhere within a second. The periodic full sync mends that.
type poll struct {
	Options
	closed chan struct{}

	mu sync.Mutex
	// socket stays in the network namespace of the thread that made it. It is -1 when it is closed.
	socket int
	// known is what each table was like when it was last as we wrote it, or when a full sync began. Tables
	// that did not exist then and that we have not written since are not in it and not looked at: the
	// kernel would load their modules.
	known map[Table]observation
	// reported is set from a report of drift until the full sync that answers it.
	reported bool
}

func newPoll(o Options) (*poll, error) {
	// A socket of IPv6, but for a raw one, takes the options of IPv4, too. Its protocol does not matter.
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

// commit looks before a restore for what others did, and reads those tables after it: the restore need not
// wait for that.
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

// untouched says that a table cannot have got so many entries of ours by the restore that has just ended well. One that
// another program had changed before it may be again what it was.
func (p *poll) untouched(t Table, ours int, suspect bool) bool {
	now, _ := p.read(t)
	return int(now.numEntries) < ours || !suspect && p.known[t].settled && now == p.known[t].tableInfo
}

// observe notes what a table is like after a restore, unless it cannot have become so by that alone. A table that was
// never written need not exist.
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

// changed gives the tables that are not as known. One that is gone differs from any.
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

// inspect reads the contents of suspects. Those that are intact are known from now on by the state from
// before the reading, so that a later change will show. Those of which nothing can be told stay suspect.
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

// Forget implements Watcher. The tables as they are now are what the full sync is going to read.
func (p *poll) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reported = false
	for _, t := range p.Tables {
		// Only root may read the list: for others a change before the first restore is not noticed.
		present, _ := xtables.Tables(xtables.Legacy, t.Family)
		if _, written := p.known[t]; !written && !slices.Contains(present, t.Name) {
			continue
		}
		if now, err := p.read(t); err == nil {
			p.known[t] = observation{tableInfo: now}
		}
	}
}

// read asks for the present state of a table. The error is ENOENT or ENOPROTOOPT when there is none, even
// after the kernel has tried to load the module.
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
