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

// watcherBuffer is room for the notices of about 1,000 element operations on kernels that send each
// in a buffer of its own (before 5.13), and of many more on later ones.
const watcherBuffer = 8 << 20

// rejoinAfter is when a group that could not be joined is tried again.
const rejoinAfter = 2 * time.Second

// WatcherOptions are what a Watcher is made with.
type WatcherOptions struct {
	// Concerns says what of ours a notice is about, for the report; empty when it is nothing of ours. It is
	// called with the watcher's lock held, and not for every notice of a transaction that is known to
	// concern us.
	Concerns func(Message) (what string)
	// Notify is called with a reason when another program changed something of ours, from Run's goroutine or
	// that of Own, without the lock. After it there is silence until Forget.
	Notify func(reason string)
}

// Watcher notices transactions of other programs that touch what is ours.
//
// The kernel sends a notice for each object that a transaction changed, then one for the transaction.
// All are in the socket's buffer when the transaction's sender returns, and when a later one is refused as
// stale. A notice has the address of the sender's socket, by which those of Commit are known. Other transactions
// of our own are told from those of others without knowing the process that sends them: mu is held while we run some,
// the notices from before are read first, and of those that came during the run as many may concern us as we made.
//
// For a big transaction the kernel would allocate a page for each notice. There Own leaves the
// group, and compares the kernel's count of transactions instead.
type Watcher struct {
	// Conn is what Commit sends by. It may be used for other requests.
	Conn *Conn
	// Stale counts the batches that came too late.
	Stale atomic.Uint64

	opts WatcherOptions
	sock *netlink.Conn
	raw  syscall.RawConn

	mu  sync.Mutex
	buf []byte
	// generation is the number of the last transaction whose notices were read; 0: some were not.
	generation uint32
	// dirty says what of ours the transaction touches whose notices are being read.
	dirty string
	// reported is set from a report of drift until the full sync that answers it.
	reported bool
	// outside says that the group could not be joined again. The read deadline is when Run tries next.
	outside bool
}

// NewWatcher subscribes to the notices of the calling thread's network namespace.
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
	_ = m.sock.SetReadBuffer(watcherBuffer) // without CAP_NET_ADMIN in the first user namespace a smaller one has to do
	if m.raw, err = m.sock.SyscallConn(); err == nil {
		err = m.sock.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("nftables notices: %w", err)
	}
	return m, nil
}

// join joins the group again, and gives the reason to report when notices were lost.
func (m *Watcher) join() (reason string) {
	if err := m.sock.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		m.outside = true
		_ = m.sock.SetReadDeadline(time.Now().Add(rejoinAfter))
		return m.report("no notices of the kernel: " + err.Error())
	}
	if m.outside {
		m.outside = false
		_ = m.sock.SetReadDeadline(time.Time{})
		return m.report("notices of the kernel were lost")
	}
	return ""
}

// Run reports drift until the watcher is closed.
func (m *Watcher) Run() {
	for {
		reason := ""
		err := m.raw.Read(func(uintptr) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			reason, _ = m.foreign(0)
			return reason != ""
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			m.mu.Lock()
			reason = m.join()
			m.mu.Unlock()
		case err != nil:
			return // closed
		}
		if reason != "" {
			m.opts.Notify(reason)
		}
	}
}

// Close ends the subscription, and Run.
func (m *Watcher) Close() error {
	m.Conn.Close()
	return m.sock.Close()
}

// Forget drops what was noticed so far: a full sync begins, which will find it all out.
func (m *Watcher) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drain()
	m.dirty, m.reported = "", false
}

// ErrNoEffect is the error of a commit after which the kernel has told of no transaction.
var ErrNoEffect = errors.New("the program reported success, but the kernel saw no change: check that the program is the distribution's own")

// Own runs commit, which makes up to that many transactions of ours, one after the other until one fails, and
// reports drift if others touched what is ours before or meanwhile. A commit that succeeds must have changed something
// of ours, or it counts as failed. big says that the transactions have more than about a thousand operations.
func (m *Watcher) Own(transactions int, big bool, commit func() error) error {
	before, meanwhile, err := m.watched(transactions, big, commit)
	for _, reason := range []string{before, meanwhile} {
		if reason != "" {
			m.opts.Notify(reason)
		}
	}
	return err
}

func (m *Watcher) watched(transactions int, big bool, commit func() error) (before, meanwhile string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, _ = m.foreign(0)
	if big {
		meanwhile, err = m.counted(transactions, commit)
		return before, meanwhile, err
	}
	if err = commit(); err != nil {
		meanwhile, _ = m.foreign(transactions - 1) // the one that failed changed nothing
		return before, meanwhile, err
	}
	meanwhile, idle := m.foreign(transactions)
	if idle && !m.outside {
		err = ErrNoEffect
	}
	return before, meanwhile, err
}

// counted runs transactions outside of the group.
func (m *Watcher) counted(transactions int, commit func() error) (foreign string, err error) {
	before, err := m.Conn.Generation()
	if err != nil {
		return "", err
	}
	if err := m.sock.LeaveGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return "", fmt.Errorf("nftables notices: %w", err)
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
		foreign = m.report("another program changed rules during a big transaction")
	}
	return foreign, failed
}

// foreign reads what the kernel has sent and gives the reason when more transactions than our own
// touched what is ours; empty when all is well or the drift is known. idle says that surely none did.
func (m *Watcher) foreign(own int) (reason string, idle bool) {
	touched, last, overrun := m.drain()
	switch {
	case overrun:
		return m.report("notices of the kernel were lost"), false
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

// drain reads until the buffer is empty and counts the transactions that touched what is ours. last
// describes the last of them.
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
				if what := m.note(msg, own); what != "" {
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

// note takes one notice. At the end of a transaction it says what of ours that touched. Those from the port own are
// of Commit.
func (m *Watcher) note(msg Message, own uint32) (touched string) {
	if msg.Kind == unix.NFT_MSG_NEWGEN {
		m.generation = Uint32(Attr(msg.Attrs, unix.NFTA_GEN_ID))
		touched, m.dirty = m.dirty, ""
		return touched
	}
	if m.dirty == "" && msg.Port != own {
		m.dirty = m.opts.Concerns(msg)
	}
	return ""
}
