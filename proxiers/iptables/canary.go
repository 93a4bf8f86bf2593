package iptables

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// canaryInterval is how often the canary looks.
const canaryInterval = time.Second

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

// tableID names a table of one family.
type tableID struct {
	family plan.Family
	table  string
}

// sight is what a table was like at one time.
type sight struct {
	tableInfo
	// ours is how many of the entries were ours, if that was settled.
	ours    int
	settled bool
}

// canary is the watcher of iptables-legacy, where the kernel tells nobody of a change. It looks at each table's
// number of entries, size and places of built-in chains: the kernel copies nothing for that, and the four
// tables of 5,000 Services take 12 µs of CPU each second (Linux 6.18). Only when they are not as our last
// restore left them is the table read (0.11 s of CPU for nat).
//
// A restore of ours may wait seconds for the lock of the iptables programs, while another program changes the
// table. So the number of entries must change by what we wrote, too.
//
// What leaves all these numbers as they are is not noticed: a rule replaced by another of the same size in
// the same chain, or a change and its opposite elsewhere within a second. The periodic full sync mends that.
type canary struct {
	watchOptions
	sockets map[plan.Family]int
	closed  chan struct{}

	mu sync.Mutex
	// known is what each table was like when it was last as we wrote it, or when a full sync began. Tables
	// that did not exist then and that we have not written since are not in it and not looked at: the
	// kernel would load their modules.
	known map[tableID]sight
	// reported is set from a report of drift until the full sync that answers it.
	reported bool
}

func newCanary(o watchOptions) (watcher, error) {
	c := &canary{watchOptions: o, sockets: map[plan.Family]int{}, known: map[tableID]sight{}, closed: make(chan struct{})}
	for _, f := range o.families {
		domain := unix.AF_INET
		if f == plan.IPv6 {
			domain = unix.AF_INET6
		}
		// A socket stays in the network namespace of the thread that made it. Its protocol does not matter.
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(os.NewSyscallError("socket", err), c.closeSockets())
		}
		c.sockets[f] = fd
	}
	return c, nil
}

// run implements watcher.
func (c *canary) run() {
	tick := time.NewTicker(canaryInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
		if reason := c.look(); reason != "" {
			c.notify(reason)
		}
	}
}

func (c *canary) look() (reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inspect(c.differing())
}

// own implements watcher.
func (c *canary) own(_ int, _ bool, commit func() error) error {
	reason, err := c.commit(commit)
	if reason != "" {
		c.notify(reason)
	}
	return err
}

// commit looks before a restore for what others did, and reads those tables after it: the restore need not
// wait for that.
func (c *canary) commit(commit func() error) (reason string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	suspects := c.differing()
	if err := commit(); err != nil {
		return "", err
	}
	for f := range c.sockets {
		for _, table := range tables {
			id := tableID{f, table}
			if slices.Contains(suspects, id) {
				continue
			}
			plausible, err := c.learn(id)
			if err != nil {
				return "", err
			}
			if !plausible {
				suspects = append(suspects, id)
			}
		}
	}
	return c.inspect(suspects), nil
}

// learn notes what a table is like after a restore, unless it can not have become so by that alone.
func (c *canary) learn(id tableID) (plausible bool, err error) {
	before, written := c.known[id]
	now, err := c.read(id)
	ours, settled := c.entries(id.family, id.table)
	grown, wrote := int(now.numEntries)-int(before.numEntries), ours-before.ours
	switch {
	case err != nil && written:
		return false, nil
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("state of table %s of %s: %w", id.table, id.family, err)
	case settled && before.settled && grown != wrote:
		return false, nil
	}
	c.known[id] = sight{now, ours, settled}
	return true, nil
}

// differing gives the tables that are not as known. One that is gone differs from any.
func (c *canary) differing() (suspects []tableID) {
	if c.reported || c.isClosed() {
		return nil
	}
	for id, known := range c.known {
		if now, err := c.read(id); err != nil || now != known.tableInfo {
			suspects = append(suspects, id)
		}
	}
	return suspects
}

// inspect reads the contents of suspects. Those that are intact are known from now on by the state from
// before the reading, so that a later change will show. Those of which nothing can be told stay suspect.
func (c *canary) inspect(suspects []tableID) (reason string) {
	for _, id := range suspects {
		now, _ := c.read(id)
		reason, settled := c.intact(id.family, id.table)
		if reason != "" {
			c.reported = true
			return reason
		}
		if settled {
			ours, settled := c.entries(id.family, id.table)
			c.known[id] = sight{now, ours, settled}
		}
	}
	return ""
}

// forget implements watcher. The tables as they are now are what the full sync is going to read.
func (c *canary) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = false
	for f := range c.sockets {
		present, _ := legacyTables(f) // only root may read it: then a change before the first restore is not noticed
		for _, table := range tables {
			id := tableID{f, table}
			if _, written := c.known[id]; !written && !slices.Contains(present, table) {
				continue
			}
			if now, err := c.read(id); err == nil {
				c.known[id] = sight{tableInfo: now}
			}
		}
	}
}

// read asks for the present state of a table. The error is ENOENT or ENOPROTOOPT when there is none, even
// after the kernel has tried to load the module.
func (c *canary) read(id tableID) (info tableInfo, err error) {
	level := unix.SOL_IP
	if id.family == plan.IPv6 {
		level = unix.SOL_IPV6
	}
	copy(info.name[:], id.table)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(c.sockets[id.family]), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return tableInfo{}, os.NewSyscallError("getsockopt", errno)
	}
	return info, nil
}

func (c *canary) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.closed)
	return c.closeSockets()
}

func (c *canary) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *canary) closeSockets() error {
	var errs []error
	for _, fd := range c.sockets {
		errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
	}
	return errors.Join(errs...)
}
