package trace

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

func TestMain(m *testing.M) {
	netlab.PeerMain()
	os.Exit(m.Run())
}

// If a host connects to itself, the kernel assigns a new ID to each packet that passes through the loopback interface,
// and the same host sends the reply.
func TestTraceConnectionToThisHost(t *testing.T) {
	t.Parallel()
	node := netlab.New(t, netlab.Options{}).Node
	to := netip.AddrPortFrom(node.Addrs[0], 8080)
	if err := node.Serve("local", to, plan.TCP); err != nil {
		t.Fatal(err)
	}
	from := uint16(40000)
	for rule, want := range map[string]Verdict{
		"hook output priority 0; tcp dport 8080 drop":  {Dropped: true},
		"hook input priority 0; tcp dport 8080 drop":   {Dropped: true},
		"hook output priority 0; tcp sport 8080 drop":  {Dropped: true, Reply: true, Answered: true},
		"hook input priority 0; tcp sport 8080 drop":   {Dropped: true, Reply: true, Answered: true},
		"hook input priority 0; tcp dport 8080 accept": {Answered: true},
	} {
		nft := node.Command(t.Context(), "nft", "-f", "-")
		nft.Stdin = strings.NewReader("table inet foo\ndelete table inet foo\ntable inet foo {\nchain c {\ntype filter " + rule + "\n}\n}\n")
		if out, err := nft.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		from++ // the previous port may remain in use for a minute
		var got Verdict
		err := node.Do(func() (err error) {
			got, err = Run(t.Context(), Flow{
				Protocol: plan.TCP, Destination: to, SourcePort: from,
			}, func(ctx context.Context) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(from)}, Timeout: 3 * time.Second}
				if conn, err := d.DialContext(ctx, "tcp", to.String()); err == nil {
					_ = conn.Close()
				}
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want.Traced, want.LeftHost, want.Destination = true, rule != "hook output priority 0; tcp dport 8080 drop", to
		if want.Dropped {
			want.Family, want.Table, want.Chain, want.Rule = "inet", "foo", "c", rule[strings.Index(rule, "; ")+2:]
			want.Handle = got.Handle
			if want.Reply {
				want.Destination = netip.AddrPortFrom(to.Addr(), from)
			}
		}
		if got != want || got.Dropped && got.Handle == 0 {
			t.Errorf("%s:\n got %+v\nwant %+v", rule, got, want)
		}
	}
}
