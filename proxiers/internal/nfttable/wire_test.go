package nfttable

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// source derives values from random bytes, and from zeros when no random bytes are left.
type source []byte

func (s *source) take(n int) []byte {
	out := make([]byte, n)
	*s = (*s)[copy(out, *s):]
	return out
}

func (s *source) addr(f plan.Family) netip.Addr {
	a, _ := netip.AddrFromSlice(s.take(addrSize(f)))
	return a
}

func (s *source) entry(set *Set, id SetID, f plan.Family) Entry {
	e := Entry{Element: Element{Family: f, Set: id}}
	for _, k := range set.Key {
		switch k {
		case Addr:
			e.Addr = s.addr(f)
		case Peer:
			e.Peer = s.addr(f)
		case PeerPrefix:
			p := netip.PrefixFrom(s.addr(f), int(s.take(1)[0])%(8*addrSize(f)+1)).Masked()
			e.Peer, e.PeerBits = p.Addr(), uint8(p.Bits())
		case Proto:
			e.Proto = plan.Protocol(s.take(1)[0])
		case Port:
			e.Port = binary.BigEndian.Uint16(s.take(2))
		case PeerPort:
			e.PeerPort = binary.BigEndian.Uint16(s.take(2))
		case Slot:
			e.Slot = binary.BigEndian.Uint32(s.take(4))
		case Number:
			e.Element.Number = ChainNumber(binary.BigEndian.Uint32(s.take(4)))
		}
	}
	if set.Named {
		name := plan.ServicePortName{Namespace: "ns", Name: string(s.take(int(s.take(1)[0]) % 140))}
		e.comment = commentOf(name)
	}
	switch set.Data {
	case ToChain:
		e.Chain = "c-" + strings.Repeat("x", int(s.take(1)[0])%120)
	case ToNumber:
		e.Value.Number = ChainNumber(binary.BigEndian.Uint32(s.take(4)))
	case ToEndpoint:
		e.Endpoint = netip.AddrPortFrom(s.addr(f), binary.BigEndian.Uint16(s.take(2)))
	}
	return e
}

// FuzzWire encodes random elements of any set, and decodes the resulting messages as if the kernel had sent them. Each
// message must be valid netlink.
func FuzzWire(f *testing.F) {
	f.Add([]byte{10, 96, 0, 1, 6, 0, 80, 0, 1, 0, 2}, byte(0), false, uint16(3))
	f.Add([]byte{0, 80, 10, 1, 2, 3, 13}, byte(3), true, uint16(1500))
	f.Add([]byte("goto and a long list of it"), byte(5), true, uint16(5000))
	schema := testSchema()
	f.Fuzz(func(t *testing.T, b []byte, which byte, six bool, n uint16) {
		id, family, bytes := SetID(int(which)%len(schema.Sets)), plan.IPv4, source(b)
		if six {
			family = plan.IPv6
		}
		set, list := &schema.Sets[id], []Entry(nil)
		for range min(int(n), 5000) {
			list = append(list, bytes.entry(set, id, family))
		}
		for _, remove := range []bool{false, true} {
			got := readWire(t, setChange{set, list, remove}, id, family)
			want := list
			if remove { // messages that delete elements contain only keys
				want = slices.Clone(list)
				for i := range want {
					want[i].Value = Value{}
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d elements are read as %d, or others", len(want), len(got))
			}
		}
	})
}

// readWire encodes elements as writeElements does, and decodes them.
func readWire(t *testing.T, s setChange, id SetID, f plan.Family) (all []Entry) {
	t.Helper()
	keys := *s.set
	if s.remove {
		keys.Data = NoData
	}
	for rest := s.list; len(rest) > 0; {
		attrs, n := s.set.appendElements(nil, testSchema().Table, rest, !s.remove)
		if n == 0 || len(attrs)%4 != 0 {
			t.Fatalf("message of %d elements and %d bytes", n, len(attrs))
		}
		if table := netlink.Text(netlink.Attr(attrs,
			unix.NFTA_SET_ELEM_LIST_TABLE)); string(table) != testSchema().Table {
			t.Fatalf("table %q", table)
		}
		err := eachElement(netlink.Message{Attrs: attrs}, func(raw rawElement) error {
			e, err := keys.decode(f, id, raw, map[string]string{})
			all = append(all, e)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	return all
}

// The length field of an attribute has 16 bits, so a long list needs several messages.
func TestLongListsTakeSeveralMessages(t *testing.T) {
	s := testSchema()
	bytes, list := source(nil), []Entry(nil)
	for range 20_000 {
		list = append(list, bytes.entry(&s.Sets[slots], slots, plan.IPv6))
	}
	all := setChange{&s.Sets[slots], list, false}
	var w netlink.Batch
	writeElements(&w, s.Table, all)
	if w.Messages() < 20 {
		t.Errorf("%d bytes in %d messages", w.Size(), w.Messages())
	}
	if got := readWire(t, all, slots, plan.IPv6); len(got) != len(list) {
		t.Errorf("%d elements, want %d", len(got), len(list))
	}
}

// BenchmarkWire measures the time to encode a change to one endpoint, and the time to encode a chunk of a first sync.
func BenchmarkWire(b *testing.B) {
	s := testSchema()
	for _, n := range []int{2, chunkElements} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bytes, list := source(nil), []Entry(nil)
			for range n {
				list = append(list, bytes.entry(&s.Sets[slots], slots, plan.IPv4))
			}
			w := &netlink.Batch{}
			b.ReportAllocs()
			for b.Loop() {
				w.Reset()
				writeElements(w, s.Table, setChange{&s.Sets[slots], list, false})
			}
		})
	}
}
