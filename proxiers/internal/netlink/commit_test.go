package netlink

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// addAddresses adds messages of the given kind to b, one for each list of addresses. Each message contains the
// addresses in one list as elements of the set "s" in the table "ours". A list holds IPv4 addresses as offsets from
// 10.0.0.0.
func addAddresses(b *Batch, kind uint16, lists ...[]int) {
	for _, list := range lists {
		b.Add(kind, unix.NLM_F_CREATE, unix.NFPROTO_IPV4, func(attrs []byte) []byte {
			attrs = AppendAttr(AppendAttr(attrs, unix.NFTA_SET_ELEM_LIST_TABLE, "ours"), unix.NFTA_SET_ELEM_LIST_SET,
				"s")
			attrs, all := Begin(attrs, Nested|unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			for _, n := range list {
				var element, key int
				attrs, element = Begin(attrs, Nested|1)
				attrs, key = Begin(attrs, Nested|unix.NFTA_SET_ELEM_KEY)
				attrs = AppendUint32(attrs, unix.NFTA_DATA_VALUE, 10<<24|uint32(n))
				End(attrs, key)
				End(attrs, element)
			}
			End(attrs, all)
			return attrs
		})
	}
}

func listed(t *testing.T, m *Watcher) (n int) {
	t.Helper()
	filter := AppendAttr(AppendAttr(nil, unix.NFTA_SET_ELEM_LIST_TABLE, "ours"), unix.NFTA_SET_ELEM_LIST_SET, "s")
	err := m.Conn.Dump(unix.NFT_MSG_GETSETELEM, unix.NFPROTO_IPV4, filter, func(msg Message) error {
		for range EachAttr(Attr(msg.Attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func counting(from, to int) (list []int) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}

const oneSet = "add table ip ours\nadd set ip ours s { type ipv4_addr; }"

// newRunningWatcher creates a table with an empty set and returns a running watcher.
func newRunningWatcher(t *testing.T) (*Watcher, *reports) {
	t.Helper()
	m, r := newWatcher(t)
	nft(t, oneSet)
	r.await(1) // Run may report the change after Forget
	m.Forget()
	return m, r
}

// Commit applies a batch of any number of messages atomically, even if another program's transaction came first. The
// watcher does not report the batch as drift.
func TestCommit(t *testing.T) {
	m, r := newRunningWatcher(t)
	var b Batch
	for i, c := range []struct {
		kind  uint16
		lists [][]int
		want  int
	}{
		{unix.NFT_MSG_NEWSETELEM, [][]int{{1}}, 1},
		{unix.NFT_MSG_NEWSETELEM, [][]int{{1, 2, 3}, {4}}, 4},
		{unix.NFT_MSG_DELSETELEM, [][]int{{2}, {1, 3}}, 1},
		{unix.NFT_MSG_NEWSETELEM, [][]int{counting(10, 3000), counting(3000, 3010), counting(4000, 6000)}, 5001},
	} {
		b.Reset()
		addAddresses(&b, c.kind, c.lists...)
		if err := m.Commit(&b, false); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		if n := listed(t, m); n != c.want {
			t.Errorf("after batch %d there are %d elements, want %d", i, n, c.want)
		}
		nft(t, fmt.Sprintf("add table ip other%d", i)) // this change makes the next batch stale
	}
	time.Sleep(quietPeriod)
	if got := r.take(); len(got) != 0 {
		t.Errorf("our own batches are reported: %q", got)
	}
	nft(t, "add element ip ours s { 192.0.2.1 }")
	if got := r.await(1); len(got) != 1 {
		t.Errorf("afterwards a foreign change is reported as %q", got)
	}
}

// The kernel rejects a batch with an old generation number as stale, and applies the same batch with the current
// number.
func TestStaleBatch(t *testing.T) {
	m, _ := newRunningWatcher(t)
	before, err := m.Conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	nft(t, "add table ip other")
	var b Batch
	addAddresses(&b, unix.NFT_MSG_NEWSETELEM, []int{1})
	if err := m.Conn.Commit(&b, before); !errors.Is(err, ErrStale) || listed(t, m) != 0 {
		t.Errorf("error %v, want %v; %d elements", err, ErrStale, listed(t, m))
	}
	if err := m.Conn.Commit(&b, before+1); err != nil || listed(t, m) != 1 {
		t.Errorf("error %v, %d elements", err, listed(t, m))
	}
	if err := m.Conn.Commit(&b, 0); err == nil {
		t.Error("a batch without a generation is done, after whatever transaction")
	}
}

// If another program has changed Edgeway's objects, Commit sends the batch only if the argument anyway is true.
func TestTouchedBatch(t *testing.T) {
	m, r := idleWatcher(t)
	defer m.Close()
	nft(t, oneSet)
	m.Forget()
	var b Batch
	addAddresses(&b, unix.NFT_MSG_NEWSETELEM, []int{1})
	for i, c := range []struct {
		before  string
		anyway  bool
		want    error
		reports int
	}{
		{want: nil},
		{before: "add table ip other", want: nil},
		{before: "add element ip ours s { 192.0.2.1 }", want: ErrDrift, reports: 1},
		{before: "add table ip another", want: ErrDrift},
		{before: "add element ip ours s { 192.0.2.2 }", anyway: true, want: nil},
	} {
		nft(t, c.before)
		if err := m.Commit(&b, c.anyway); !errors.Is(err, c.want) {
			t.Errorf("commit %d: error %v, want %v", i, err, c.want)
		}
		if got := r.take(); len(got) != c.reports {
			t.Errorf("commit %d: reported %q", i, got)
		}
	}
	m.Forget()
	nft(t, "add element ip ours s { 192.0.2.3 }")
	if err := m.Commit(&b, true); err != nil || len(r.take()) != 1 {
		t.Errorf("error %v, or not reported", err)
	}
}

// The error for a rejected batch contains the index of the first rejected message.
func TestRefusedBatch(t *testing.T) {
	m, _ := newRunningWatcher(t)
	var b Batch
	addAddresses(&b, unix.NFT_MSG_NEWSETELEM, counting(0, 300), counting(300, 600))
	addAddresses(&b, unix.NFT_MSG_DELSETELEM, []int{5, 6, 7000, 7, 7001}, []int{7002})
	var refused *RejectionError
	if err := m.Commit(&b, false); !errors.As(err, &refused) || !errors.Is(err, unix.ENOENT) || !refused.IsPermanent() {
		t.Fatalf("error %v, want a refusal for %v", err, unix.ENOENT)
	}
	if listed(t, m) != 0 {
		t.Error("the kernel has done a part of the batch")
	}
	if refused.Message != 2 {
		t.Errorf("message %d", refused.Message)
	}
	addAddresses(&b, unix.NFT_MSG_NEWSETELEM, []int{1})
	nft(t, "delete table ip ours")
	if err := m.Conn.Commit(&b, 1); !errors.Is(err, ErrStale) {
		t.Errorf("error %v, want %v", err, ErrStale)
	}
}

// If a batch does not fit into the socket's buffer, Commit sends no data.
func TestTooBigBatch(t *testing.T) {
	m, _ := newRunningWatcher(t)
	m.Conn.MaxBatchSize = 1000
	var b Batch
	addAddresses(&b, unix.NFT_MSG_NEWSETELEM, counting(0, 300))
	if err := m.Commit(&b, false); !errors.Is(err, ErrTooBig) {
		t.Errorf("error %v, want %v", err, ErrTooBig)
	}
	m.Conn.MaxBatchSize = 1 << 30
	addAddresses(&b, unix.NFT_MSG_NEWSETELEM, counting(300, 2000))
	err := m.Conn.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Commit(&b, false); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("error %v, want %v: the socket takes any size, and the rest says nothing", err, unix.EMSGSIZE)
	}
	if err := m.Commit(&b, false); err != nil || listed(t, m) != 2000 {
		t.Errorf("by a new socket: error %v, %d elements", err, listed(t, m))
	}
}

// While another program constantly sends transactions, the kernel applies all of Edgeway's batches, and the watcher
// reports no drift.
func TestCommitBesideOtherPrograms(t *testing.T) {
	m, r := newRunningWatcher(t)
	nft(t, "add table ip other")
	other, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const foreign = 1000
	ours, theirs := make(chan struct{}), make(chan error)
	go func() {
		n := 0
		for ; n < foreign || !closed(ours); n++ {
			if err := touchOther(other, n); err != nil {
				theirs <- err
				return
			}
		}
		t.Logf("%d transactions of others", n)
		theirs <- nil
	}()
	var b Batch
	for n := range 1000 {
		b.Reset()
		addAddresses(&b, unix.NFT_MSG_NEWSETELEM, []int{n})
		for err = ErrStale; errors.Is(err, ErrStale); {
			err = m.Commit(&b, false)
		}
		if err != nil {
			t.Fatalf("batch %d: %v", n, err)
		}
	}
	close(ours)
	if err := <-theirs; err != nil {
		t.Error(err)
	}
	if n := listed(t, m); n != 1000 {
		t.Errorf("%d elements, want 1000", n)
	}
	time.Sleep(quietPeriod)
	if got := r.take(); len(got) != 0 {
		t.Errorf("reported %q", got)
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// touchOther adds a chain to the table "other" if n is even, and deletes it if n is odd.
func touchOther(c *Conn, n int) error {
	kind := []uint16{unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN}[n%2]
	var b Batch
	b.Add(kind, unix.NLM_F_CREATE, unix.NFPROTO_IPV4, func(attrs []byte) []byte {
		return AppendAttr(AppendAttr(attrs, AttrTable, "other"), unix.NFTA_CHAIN_NAME, "c")
	})
	for {
		generation, err := c.Generation()
		if err != nil {
			return err
		}
		if err = c.Commit(&b, generation); !errors.Is(err, ErrStale) {
			return err
		}
	}
}

// FuzzResponse parses random bytes as the kernel's responses.
func FuzzResponse(f *testing.F) {
	f.Add([]byte{
		44, 0, 0, 0, 2, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 20, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0,
		0, 0, 0, 0, 0, 8, 0, 2, 0, 40, 0, 0, 0,
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for range eachResponse(b) {
			n++
		}
		if n > len(b)/(netlinkHeader+4) {
			t.Errorf("%d answers in %d bytes", n, len(b))
		}
	})
}
