package nftables

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// monitorBuffer is room for the notices of about 1,000 element operations on kernels that send each
// in a buffer of its own (before 5.13), and of many more on later ones.
const monitorBuffer = 8 << 20

// monitor notices transactions of other programs that touch our tables.
//
// The kernel sends a notice for each object that a transaction changed, then one for the transaction.
// All are in the socket's buffer when the transaction's sender returns. So our own transactions are told
// from others without knowing the nft process: mu is held while we run one, the notices from before
// are read first, and of those that came during the run as many may concern our tables as we made.
//
// For a big transaction the kernel would allocate a page for each notice. There the monitor leaves the
// group, and compares the kernel's count of transactions instead.
type monitor struct {
	table    string
	families []uint8
	notify   func(reason string)

	file *os.File
	raw  syscall.RawConn

	mu  sync.Mutex
	buf []byte
	// dirty says that the transaction whose notices are being read touches our table.
	dirty bool
	// reported is set from a report of drift until the full sync that answers it.
	reported bool
}

func newMonitor(table string, families []plan.Family, notify func(string)) (*monitor, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	m := &monitor{table: table, notify: notify, buf: make([]byte, 1<<16), file: os.NewFile(uintptr(fd), "nftables notices")}
	for _, f := range families {
		m.families = append(m.families, netlinkFamily(f))
	}
	if err := m.subscribe(fd); err != nil {
		_ = m.file.Close()
		return nil, err
	}
	return m, nil
}

func (m *monitor) subscribe(fd int) (err error) {
	// Forcing needs CAP_NET_ADMIN in the first user namespace; without it a smaller buffer has to do.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, monitorBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, monitorBuffer)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("netlink bind", err)
	}
	if m.raw, err = m.file.SyscallConn(); err != nil {
		return err
	}
	return m.member(true)
}

// member joins or leaves the group.
func (m *monitor) member(join bool) error {
	option := unix.NETLINK_DROP_MEMBERSHIP
	if join {
		option = unix.NETLINK_ADD_MEMBERSHIP
	}
	var failed error
	err := m.raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("nftables notices", unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, option, unix.NFNLGRP_NFTABLES))
	})
	return errors.Join(err, failed)
}

// run reports drift until the monitor is closed.
func (m *monitor) run() {
	for {
		reason := ""
		err := m.raw.Read(func(uintptr) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			reason = m.foreign(0)
			return reason != ""
		})
		if err != nil {
			return // closed
		}
		m.notify(reason)
	}
}

func (m *monitor) close() error { return m.file.Close() }

// forget drops what was noticed so far: a full sync begins, which will find it all out.
func (m *monitor) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drain()
	m.dirty, m.reported = false, false
}

// own runs a transaction of ours and reports drift if others touched our tables meanwhile.
func (m *monitor) own(big bool, commit func() error) error {
	m.mu.Lock()
	before := m.foreign(0)
	var meanwhile string
	var err error
	if big {
		meanwhile, err = m.counted(commit)
	} else if err = commit(); err == nil {
		meanwhile = m.foreign(1)
	} else {
		meanwhile = m.foreign(0)
	}
	m.mu.Unlock()
	for _, reason := range []string{before, meanwhile} {
		if reason != "" {
			m.notify(reason)
		}
	}
	return err
}

// counted runs a transaction outside of the group.
func (m *monitor) counted(commit func() error) (foreign string, err error) {
	before, err := currentGeneration()
	if err != nil {
		return "", err
	}
	if err := m.member(false); err != nil {
		return "", err
	}
	failed := commit()
	if err := m.member(true); err != nil {
		return "", errors.Join(failed, err)
	}
	after, err := currentGeneration()
	if failed == nil && err == nil && after-before > 1 {
		foreign = m.report("another program changed rules during a big transaction")
	}
	return foreign, errors.Join(failed, err)
}

func currentGeneration() (uint32, error) {
	c, err := dialNetfilter()
	if err != nil {
		return 0, err
	}
	defer c.close()
	return c.generation()
}

// foreign reads what the kernel has sent and gives the reason when more transactions than our own
// touched our tables; empty when all is well or the drift is known.
func (m *monitor) foreign(own int) string {
	touched, last, overrun := m.drain()
	switch {
	case overrun:
		return m.report("notices of the kernel were lost")
	case touched > own:
		return m.report(last)
	}
	return ""
}

func (m *monitor) report(reason string) string {
	if m.reported {
		return ""
	}
	m.reported = true
	return reason
}

// drain reads until the buffer is empty and counts the transactions that touched our tables. last
// describes the last of them.
func (m *monitor) drain() (touched int, last string, overrun bool) {
	_ = m.raw.Control(func(fd uintptr) {
		for {
			n, _, err := unix.Recvfrom(int(fd), m.buf, unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.ENOBUFS):
				overrun = true
				continue
			case err != nil:
				return
			}
			_, err = eachMessage(m.buf[:n], func(msg message) {
				if m.note(msg) {
					touched++
					last = fmt.Sprintf("%q changed the table", cString(attr(msg.attrs, unix.NFTA_GEN_PROC_NAME)))
				}
			})
			overrun = overrun || err != nil
		}
	})
	return touched, last, overrun
}

// note takes one notice; true at the end of a transaction that touched our tables.
func (m *monitor) note(msg message) (touched bool) {
	if msg.kind == unix.NFT_MSG_NEWGEN {
		touched, m.dirty = m.dirty, false
		return touched
	}
	if !m.dirty && slices.Contains(m.families, msg.family) {
		m.dirty = string(cString(attr(msg.attrs, attrTable))) == m.table
	}
	return false
}
