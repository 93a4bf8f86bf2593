package netlink

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

// watcherBuffer is the size in bytes of the socket's receive buffer, which has space for notifications about at least
// 1,000 element operations. Kernels before 5.13 need the most space, because they use a separate buffer for each
// notification.
const watcherBuffer = 8 << 20

// rejoinDelay is the delay before the next attempt to join the multicast group.
const rejoinDelay = 2 * time.Second

// WatcherOptions configures a Watcher.
type WatcherOptions struct {
	// AffectedObject returns a description of the Edgeway object that a notification is about, or "" if the
	// notification is about another program's object. The Watcher includes the description in its report. The Watcher
	// holds its lock during a call to AffectedObject. After AffectedObject has returned a description for a
	// transaction, the Watcher may skip the transaction's other notifications.
	AffectedObject func(Message) (what string)
	// The Watcher calls Notify with a reason when another program has changed Edgeway's objects. The Watcher does not
	// hold its lock during a call to Notify, and calls Notify at most once between two calls to Forget.
	Notify func(reason string)
}

// Watcher detects other programs' transactions that change Edgeway's objects.
//
// The kernel sends a notification for each object that a transaction changed, and then one for the transaction itself.
// All notifications about a transaction are in the Watcher's socket buffer before the transaction's sendmsg call
// returns, and before the kernel rejects a later transaction as stale. A notification contains the address of the
// sender's socket, which identifies the transactions that Commit sent. The Watcher does not know the socket address of
// a program that Edgeway runs. RunCommit therefore holds mu while the program is running. Before running the program,
// RunCommit reads all pending notifications. Afterwards, RunCommit reports drift if more transactions changed Edgeway's
// objects than the program sends.
//
// For a big transaction, the kernel allocates a page for each notification. RunCommit therefore leaves the multicast
// group during a big transaction, and compares the kernel's transaction counts instead.
type Watcher struct {
	// Commit uses Conn. Other code may also use Conn for requests.
	Conn *Conn
	// StaleBatches counts the batches that the kernel rejected as stale.
	StaleBatches atomic.Uint64

	opts WatcherOptions
	sock *netlink.Conn
	raw  syscall.RawConn

	mu  sync.Mutex
	buf []byte
	// generation is the number of the last transaction whose notifications the watcher has read, or 0 if the kernel
	// dropped notifications.
	generation uint32
	// changedObject describes the Edgeway object changed by the transaction whose notifications the watcher is reading.
	changedObject string
	// reported is true from the time when the watcher reports drift until the next full sync calls Forget.
	reported bool
	// joinFailed reports whether the last attempt to rejoin the multicast group failed. After a failure, Run tries to
	// rejoin the group when the socket's read deadline expires.
	joinFailed bool
}

// NewWatcher returns a Watcher that receives the notifications in the calling thread's network namespace.
func NewWatcher(opts WatcherOptions) (*Watcher, error) {
	conn, err := Dial()
	if err != nil {
		return nil, err
	}
	m := &Watcher{opts: opts, Conn: conn, buf: make([]byte, 1<<16)}
	if m.sock, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
		conn.Close()
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	_ = m.sock.SetReadBuffer(watcherBuffer) // needs CAP_NET_ADMIN in the initial user namespace
	if m.raw, err = m.sock.SyscallConn(); err == nil {
		err = m.sock.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("nftables notifications: %w", err)
	}
	return m, nil
}

// join rejoins the multicast group. If the attempt fails, or succeeds after an earlier failure, join returns the reason
// for a drift report.
func (m *Watcher) join() (reason string) {
	if err := m.sock.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		m.joinFailed = true
		_ = m.sock.SetReadDeadline(time.Now().Add(rejoinDelay))
		return m.report("cannot subscribe to the kernel's notifications: " + err.Error())
	}
	if m.joinFailed {
		m.joinFailed = false
		_ = m.sock.SetReadDeadline(time.Time{})
		return m.report("the kernel dropped notifications")
	}
	return ""
}

// Run reports drift until the caller calls Close.
func (m *Watcher) Run() {
	for {
		reason := ""
		err := m.raw.Read(func(uintptr) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			reason, _ = m.detectDrift(0)
			return reason != ""
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			m.mu.Lock()
			reason = m.join()
			m.mu.Unlock()
		case err != nil:
			return // the socket is closed
		}
		if reason != "" {
			m.opts.Notify(reason)
		}
	}
}

// Close closes the sockets, which makes Run return.
func (m *Watcher) Close() error {
	m.Conn.Close()
	return m.sock.Close()
}

// Forget discards all notifications that are already in the socket's buffer. A full sync calls Forget first, because
// the sync itself detects all changes.
func (m *Watcher) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drain()
	m.changedObject, m.reported = "", false
}

// ErrNoEffect means that a commit succeeded but the kernel reported no transaction.
var ErrNoEffect = errors.New("the nft or iptables program reported success, but changed nothing in the kernel; " +
	"fix: install the program from the distribution's package")

// RunCommit runs commit, and does not report commit's transactions as drift. commit must send at most the given number
// of transactions and stop at the first failure. RunCommit reports drift if other programs have changed Edgeway's
// objects before or during commit. If commit succeeds but changes no Edgeway object, RunCommit returns ErrNoEffect. big
// reports whether the transactions have more than about a thousand operations.
func (m *Watcher) RunCommit(transactions int, big bool, commit func() error) error {
	before, meanwhile, err := m.runCommit(transactions, big, commit)
	for _, reason := range []string{before, meanwhile} {
		if reason != "" {
			m.opts.Notify(reason)
		}
	}
	return err
}

func (m *Watcher) runCommit(transactions int, big bool, commit func() error) (before, meanwhile string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, _ = m.detectDrift(0)
	if big {
		meanwhile, err = m.commitOutsideGroup(transactions, commit)
		return before, meanwhile, err
	}
	if err = commit(); err != nil {
		meanwhile, _ = m.detectDrift(transactions - 1) // the failed transaction changed nothing
		return before, meanwhile, err
	}
	meanwhile, idle := m.detectDrift(transactions)
	if idle && !m.joinFailed {
		err = ErrNoEffect
	}
	return before, meanwhile, err
}

// commitOutsideGroup calls commit while the watcher is outside the multicast group.
func (m *Watcher) commitOutsideGroup(transactions int, commit func() error) (foreign string, err error) {
	before, err := m.Conn.Generation()
	if err != nil {
		return "", err
	}
	if err := m.sock.LeaveGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return "", fmt.Errorf("nftables notifications: %w", err)
	}
	failed := contain.Call(commit)
	foreign, m.generation = m.join(), 0
	contain.Rethrow(failed)
	after, err := m.Conn.Generation()
	switch {
	case failed != nil:
	case err == nil && after == before:
		failed = ErrNoEffect
	case foreign == "" && (err != nil || after-before > uint32(transactions)):
		foreign = m.report("another program changed rules during a large Edgeway transaction")
	}
	return foreign, failed
}

// detectDrift reads the pending notifications. If more than own transactions (not counting those that Commit sent)
// changed Edgeway's objects, and the watcher has not reported drift yet, detectDrift returns a reason. idle reports
// whether the watcher is certain that no such transaction changed Edgeway's objects.
func (m *Watcher) detectDrift(own int) (reason string, idle bool) {
	touched, last, overrun := m.drain()
	switch {
	case overrun:
		return m.report("the kernel dropped notifications"), false
	case touched > own:
		return m.report(last), false
	}
	return "", touched == 0
}

func (m *Watcher) report(reason string) string {
	if m.reported {
		return ""
	}
	m.reported = true
	return reason
}

// drain reads all pending notifications and counts the transactions that changed Edgeway's objects. last describes the
// last transaction that changed an Edgeway object.
func (m *Watcher) drain() (touched int, last string, overrun bool) {
	own := m.Conn.Port()
	_ = m.raw.Control(func(fd uintptr) {
		for {
			n, err := read(fd, m.buf)
			switch {
			case errors.Is(err, unix.ENOBUFS):
				overrun = true
				continue
			case err != nil:
				return
			}
			_, err = EachMessage(m.buf[:n], func(msg Message) {
				if what := m.processNotification(msg, own); what != "" {
					touched++
					last = fmt.Sprintf("%q changed %s", Text(Attr(msg.Attrs, unix.NFTA_GEN_PROC_NAME)), what)
				}
			})
			overrun = overrun || err != nil
		}
	})
	if overrun {
		m.generation = 0
	}
	return touched, last, overrun
}

// processNotification processes a notification. At the end of a transaction, processNotification returns a description
// of the Edgeway object that the transaction changed. A notification whose port equals own is about a transaction that
// Commit sent.
func (m *Watcher) processNotification(msg Message, own uint32) (touched string) {
	if msg.Kind == unix.NFT_MSG_NEWGEN {
		m.generation = Uint32(Attr(msg.Attrs, unix.NFTA_GEN_ID))
		touched, m.changedObject = m.changedObject, ""
		return touched
	}
	if m.changedObject == "" && msg.Port != own {
		m.changedObject = m.opts.AffectedObject(msg)
	}
	return ""
}
