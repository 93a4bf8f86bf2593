package netlink

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

const (
	// quietPeriod is the time that a test waits for notifications that must not arrive.
	quietPeriod = 50 * time.Millisecond
	patience    = 30 * time.Second
)

type reports struct {
	mu   sync.Mutex
	list []string
}

func (r *reports) add(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, reason)
}

func (r *reports) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// await waits for n reports, and then returns all reports.
func (r *reports) await(n int) []string {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		enough := len(r.list) >= n
		r.mu.Unlock()
		if enough {
			break
		}
	}
	time.Sleep(quietPeriod)
	return r.take()
}

// newWatcher runs a watcher for the table "ours" in a new network namespace. The goroutine stays locked to its thread,
// so the thread and the namespace disappear after the test.
func newWatcher(t *testing.T) (*Watcher, *reports) {
	t.Helper()
	m, r := idleWatcher(t)
	var running sync.WaitGroup
	running.Go(m.Run)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		running.Wait()
	})
	return m, r
}

// idleWatcher returns a watcher that is not running.
func idleWatcher(t *testing.T) (*Watcher, *reports) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (the test needs root): %v", err)
	}
	r := &reports{}
	m, err := NewWatcher(WatcherOptions{Notify: r.add, AffectedObject: func(m Message) string {
		if string(Text(Attr(m.Attrs, AttrTable))) == "ours" {
			return "the table"
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

func nft(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
}

func TestOwnCountsTransactions(t *testing.T) {
	m, r := newWatcher(t)
	nft(t, "add table ip ours")
	r.await(1) // Run may report the change after Forget
	m.Forget()
	refused := errors.New("refused")
	for _, c := range []struct {
		name              string
		promised, made    int
		big, other, fails bool
		want              int
	}{
		{name: "as many as promised", promised: 2, made: 2},
		{name: "fewer", promised: 2, made: 1},
		{name: "one more", promised: 2, made: 3, want: 1},
		{name: "and another table", promised: 2, made: 2, other: true},
		{name: "the second failed", promised: 2, made: 1, fails: true},
		{name: "the second failed, and a foreign one", promised: 2, made: 2, fails: true, want: 1},
		{name: "big", promised: 2, made: 2, big: true},
		{name: "big, one more", promised: 2, made: 3, big: true, want: 1},
	} {
		err := m.RunCommit(c.promised, c.big, func() error {
			for i := range c.made {
				nft(t, fmt.Sprintf("add chain ip ours c%d\ndelete chain ip ours c%d", i, i))
			}
			if c.other {
				nft(t, "add table ip other")
			}
			if c.fails {
				return refused
			}
			return nil
		})
		if c.fails != errors.Is(err, refused) {
			t.Errorf("%s: error %v", c.name, err)
		}
		if got := r.await(c.want); len(got) != c.want {
			t.Errorf("%s: reported %q, want %d times", c.name, got, c.want)
		}
		m.Forget()
		nft(t, "add chain ip ours later\ndelete chain ip ours later")
		if got := r.await(1); len(got) != 1 {
			t.Errorf("%s: afterwards a foreign change is reported as %q", c.name, got)
		}
		m.Forget()
	}
}

// RunCommit returns an error if a program reports success but changes nothing, or changes another table.
func TestOwnWithoutEffect(t *testing.T) {
	m, r := newWatcher(t)
	nft(t, "add table ip ours")
	r.await(1) // Run may report the change after Forget
	m.Forget()
	for _, big := range []bool{false, true} {
		if err := m.RunCommit(1, big, func() error { return nil }); !errors.Is(err, ErrNoEffect) {
			t.Errorf("big %v: error %v, want %v", big, err, ErrNoEffect)
		}
		m.Forget()
	}
	if err := m.RunCommit(1, false, func() error {
		nft(t, "add table ip other")
		return nil
	}); !errors.Is(err, ErrNoEffect) {
		t.Errorf("something elsewhere: error %v, want %v", err, ErrNoEffect)
	}
}

// After a panic in a big commit, the watcher still reports other programs' changes.
func TestForeignChangeAfterCommitPanicIsReported(t *testing.T) {
	m, r := newWatcher(t)
	nft(t, "add table ip ours")
	r.await(1) // Run may report the change after Forget
	m.Forget()
	if err := contain.Call(func() error {
		return m.RunCommit(1, true,
			func() error { panic("on purpose") })
	}); !contain.IsPanic(err) {
		t.Errorf("the commit ends with %v", err)
	}
	nft(t, "add chain ip ours later")
	if got := r.await(1); len(got) != 1 {
		t.Errorf("reported %q, want one report", got)
	}
}

func TestReportNamesProgram(t *testing.T) {
	m, r := newWatcher(t)
	nft(t, "add table ip ours")
	got := r.await(1)
	nft(t, "delete table ip ours") // the watcher sends no second report before the full sync
	if got = append(got, r.await(0)...); len(got) != 1 || got[0] != `"nft" changed the table` {
		t.Errorf("reported %q", got)
	}
	m.Forget()
	nft(t, "add table ip ours")
	if got := r.await(1); len(got) != 1 {
		t.Errorf("after the full sync reported %q, want one report", got)
	}
}

func TestLostNoticesAreReported(t *testing.T) {
	m, r := newWatcher(t)
	err := m.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("add table ip other\nadd set ip other s { type ipv4_addr; }\n")
	for i := range 2000 {
		fmt.Fprintf(&script, "add element ip other s { 10.0.%d.%d }\n", i/250, i%250)
	}
	m.mu.Lock() // keeps the watcher from reading notifications
	nft(t, script.String())
	m.mu.Unlock()
	if got := r.await(1); len(got) != 1 {
		t.Errorf("reported %q, want one report", got)
	}
}

func TestGenerationCountsTransactions(t *testing.T) {
	m, _ := newWatcher(t)
	before, err := m.Conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		nft(t, fmt.Sprintf("add table ip t%d", i))
	}
	after, err := m.Conn.Generation()
	if err != nil || after-before != 3 {
		t.Errorf("%d transactions counted, error %v; want 3", after-before, err)
	}
}

// If the watcher cannot rejoin the multicast group, it keeps running, reports drift, and reports drift again after the
// next full sync. The watcher detects changes again after it has rejoined the group.
func TestMulticastGroupIsRejoined(t *testing.T) {
	m, r := newWatcher(t)
	nft(t, "add table ip ours")
	r.await(1) // Run may report the change after Forget
	m.Forget()
	before := capabilities(t)
	err := m.RunCommit(1, true, func() error {
		none := before
		none[0].Effective = 0
		return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
	})
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &before[0]); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("the transaction went well, but: %v", err)
	}
	if got := r.take(); len(got) != 1 || !strings.Contains(got[0], "cannot subscribe") {
		t.Fatalf("without notices reported %q", got)
	}
	m.Forget() // simulates a full sync
	if got := r.await(1); len(got) != 1 || !strings.Contains(got[0], "dropped") {
		t.Fatalf("with notices again reported %q", got)
	}
	m.Forget()
	nft(t, "add chain ip ours c")
	if got := r.await(1); len(got) != 1 || !strings.Contains(got[0], "changed") {
		t.Errorf("afterwards a change is reported as %q", got)
	}
}

func capabilities(t *testing.T) (data [2]unix.CapUserData) {
	t.Helper()
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		t.Fatal(err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		t.Fatal("the test needs CAP_NET_ADMIN, to be without it for a while")
	}
	return data
}

// The kernel rejects a request while part of the response to an earlier request is unread, so the Conn must open a new
// socket.
func TestRequestAfterUnreadAnswer(t *testing.T) {
	m, _ := newWatcher(t)
	nft(t, "add table ip ours\nadd chain ip ours c")
	if err := m.Conn.request(unix.NFT_MSG_GETCHAIN, unix.NLM_F_REQUEST|unix.NLM_F_DUMP,
		[]byte{unix.NFPROTO_IPV4, unix.NFNETLINK_V0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	tables := func() (n int, err error) {
		err = m.Conn.Dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_IPV4, nil, func(Message) error { n++; return nil })
		return n, err
	}
	if _, err := tables(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("error %v, want %v: the rest of this test says nothing", err, unix.EBUSY)
	}
	m.Conn.stuck = true // simulates a timeout
	if n, err := tables(); n != 1 || err != nil {
		t.Errorf("%d tables, error %v, want one", n, err)
	}
}

// FuzzEachMessage parses random bytes. The messages must be consecutive and lie within the buffer.
func FuzzEachMessage(f *testing.F) {
	f.Add([]byte{24, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 1, 0})
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		_, _ = EachMessage(b, func(m Message) { total += netlinkHeader + nfgenHeader + len(m.Attrs) })
		if total > len(b) {
			t.Errorf("%d bytes of messages in %d", total, len(b))
		}
	})
}

// FuzzEachAttr parses random bytes. The attributes must be consecutive and lie within the buffer.
func FuzzEachAttr(f *testing.F) {
	f.Add([]byte{8, 0, 1, 128, 1, 2, 3, 4, 5, 0, 2, 0, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		for typ, v := range EachAttr(b) {
			total += 4 + len(v)
			if typ > attrTypeMask {
				t.Errorf("attribute of type %d", typ)
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of attributes in %d", total, len(b))
		}
	})
}
