package trace

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// message returns a kernel message about a rule or, if the handle is 0, about a policy.
func message(t testing.TB, e event) netlink.Message {
	t.Helper()
	const accept = 1
	verdict := uint32(accept)
	if e.dropped {
		verdict = nfDrop
	}
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	attrs.Uint32(unix.NFTA_TRACE_ID, e.packet)
	attrs.String(unix.NFTA_TRACE_TABLE, e.table)
	attrs.String(unix.NFTA_TRACE_CHAIN, e.chain)
	if e.handle == 0 {
		attrs.Uint32(unix.NFTA_TRACE_POLICY, verdict)
	} else {
		attrs.Uint64(unix.NFTA_TRACE_RULE_HANDLE, e.handle)
		attrs.Nested(unix.NFTA_TRACE_VERDICT, func(v *netlink.AttributeEncoder) error {
			v.ByteOrder = binary.BigEndian
			v.Uint32(unix.NFTA_VERDICT_CODE, verdict)
			return nil
		})
	}
	if e.destination.IsValid() {
		attrs.Bytes(unix.NFTA_TRACE_NETWORK_HEADER, append([]byte{0x45, 15: 0}, e.destination.Addr().AsSlice()...))
		attrs.Bytes(unix.NFTA_TRACE_TRANSPORT_HEADER, binary.BigEndian.AppendUint16([]byte{0, 0}, e.destination.Port()))
	}
	raw, err := attrs.Encode()
	if err != nil {
		t.Fatal(err)
	}
	raw = append([]byte{map[string]byte{"inet": unix.NFPROTO_INET, "ip": unix.NFPROTO_IPV4}[e.family], 0, 0, 0}, raw...)
	return netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_TRACE}, Data: raw}
}

func TestJudgeUsesFirstDrop(t *testing.T) {
	mark := event{packet: 1, family: "inet", table: tableName, chain: "output", handle: 3}
	answer := event{packet: 2, family: "inet", table: tableName, chain: replyPrefix, handle: 4}
	passed := event{packet: 1, family: "ip", table: "edgeway", chain: "nat-output", handle: 9}
	dropped := event{packet: 1, family: "inet", table: "foo", chain: "out", handle: 7, dropped: true}
	passing := event{packet: 3, family: "inet", table: tableName, chain: replyPrefix}
	foreign := event{packet: 3, family: "inet", table: "foo", chain: "out", handle: 8, dropped: true}
	byPolicy := event{packet: 2, family: "ip", table: "filter", chain: "INPUT", dropped: true}
	early, late := netip.MustParseAddrPort("10.96.0.10:80"), netip.MustParseAddrPort("10.244.1.11:8080")
	left := event{packet: 1, family: "inet", table: tableName, chain: leavingChain, handle: 5}
	mark.destination, passed.destination, left.destination = early, late, late
	for name, c := range map[string]struct {
		events []event
		want   Verdict
	}{
		"nothing":                      {nil, Verdict{}},
		"all passed":                   {[]event{mark, passed, left}, Verdict{Traced: true, LeftHost: true, Destination: late}},
		"answered":                     {[]event{mark, passed, answer}, Verdict{Traced: true, Answered: true, Destination: early}},
		"before translation":           {[]event{mark, dropped}, Verdict{Traced: true, Dropped: true, Destination: early, Family: "inet", Table: "foo", Chain: "out", Handle: 7}},
		"a rule":                       {[]event{mark, passed, dropped}, Verdict{Traced: true, Dropped: true, Destination: late, Family: "inet", Table: "foo", Chain: "out", Handle: 7}},
		"the trace of another program": {[]event{passing, foreign, mark, passed}, Verdict{Traced: true, Destination: early}},
		"a policy, for the answer": {
			[]event{mark, passed, answer, byPolicy},
			Verdict{
				Traced: true, Answered: true, Dropped: true, Reply: true, Family: "ip", Table: "filter",
				Chain: "INPUT",
			},
		},
	} {
		var read []event
		for _, e := range c.events {
			got, ok := parse(message(t, e))
			if !ok || got != e {
				t.Errorf("%s: read %+v of %+v", name, got, e)
			}
			read = append(read, got)
		}
		if got := findDrop(read); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestRulesMatchOneConnection(t *testing.T) {
	got := Flow{
		Protocol: plan.TCP, Destination: netip.MustParseAddrPort("[2001:db8::10]:80"), SourcePort: 40000,
	}.rules()
	for _, want := range []string{
		"ip6 daddr 2001:db8::10 tcp sport 40000 tcp dport 80 meta nftrace set 1",
		"ct direction reply ct original ip6 daddr 2001:db8::10 meta l4proto tcp ct original proto-src 40000 meta nftrace set 1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// FuzzParse passes arbitrary messages to the function parse. A message that parse accepts must contain a family, a
// table and a chain.
func FuzzParse(f *testing.F) {
	f.Add(message(f, event{packet: 1, family: "ip", table: "filter", chain: "INPUT", dropped: true}).Data)
	f.Add(message(f, event{packet: 1, family: "inet", table: "t", chain: "c", handle: 1}).Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_TRACE},
			Data:   data,
		}
		e, ok := parse(m)
		if ok && (e.family == "" || e.table == "" || e.chain == "") {
			t.Errorf("%+v", e)
		}
		if v := findDrop([]event{e}); v.Dropped && !e.dropped {
			t.Errorf("%+v of %+v", v, e)
		}
	})
}
