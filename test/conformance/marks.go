package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// foreignMark is a packet mark with many bits set, but not the masquerade bit (bit 14).
const foreignMark = "0xa5b40205"

// foreignTable is an nft table that marks every packet that the node forwards or sends, as a VPN does. The table counts
// the packets that leave the node with and without this mark, and translates a destination address that no Service
// uses.
const foreignTable = `
table inet foreign {
	counter kept {}
	counter spoiled {}
	set friends { type ipv4_addr; elements = { 192.0.2.77 } }
	chain mark-forwarded {
		type filter hook prerouting priority raw;
		meta mark set ` + foreignMark + `
	}
	chain mark-own {
		type route hook output priority raw;
		meta mark set ` + foreignMark + `
	}
	chain remember {
		type filter hook prerouting priority mangle;
		ct state new ct mark set 0x77
	}
	chain look {
		type filter hook postrouting priority 300;
		meta l4proto { tcp, udp, sctp } meta mark ` + foreignMark + ` counter name kept
		meta l4proto { tcp, udp, sctp } meta mark != ` + foreignMark + ` counter name spoiled
		iifname "client-a" meta l4proto { tcp, udp, sctp } ct mark != 0x77 counter name spoiled
	}
	chain divert {
		type nat hook prerouting priority dstnat;
		ip daddr 192.0.2.77 tcp dport 80 dnat ip to 10.244.1.2:8080
	}
}
`

// testMarks verifies that the backend preserves other programs' bits in packet marks. The test opens connections with
// masquerading, connections without masquerading, and connections to addresses without a Service. The backend must not
// change another program's nft table (SEMANTICS row 32).
func testMarks(t *testing.T, s *suite) {
	ses := s.startClean(t)
	s.foreign(t)
	before := s.nft(t, "-s", "list", "table", "inet", "foreign")
	p := ses.syncText(t, `
service web
  cluster pod-a far-a
  ClusterIP  cluster-1:80   pod=cluster host=cluster+snat outside=cluster+snat
  ExternalIP external-1:80  all=cluster
  NodePort   30080          all=cluster+snat
service sticky
  affinity 1h
  cluster pod-a far-a
  ClusterIP  cluster-2:80   pod=cluster host=cluster+snat outside=cluster+snat
`)
	rows := rowsOf(p, p.Services)
	for _, source := range everySource {
		for _, family := range families {
			for _, proto := range protocols {
				r, err := newRow(source, s.world.endpoints["far-b"][family], proto)
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, r)
			}
		}
	}
	s.mustAgree(t, p, passing(p, rows), "with foreign marks")

	if n := s.counter(t, "kept"); n < len(p.Services) {
		t.Errorf("only %d packets with the foreign mark left the node", n)
	}
	if n := s.counter(t, "spoiled"); n > 0 {
		t.Errorf("%d packets left the node without the mark %s", n, foreignMark)
	}
	ses.apply(t, nil, p)
	if after := s.nft(t, "-s", "list", "table", "inet", "foreign"); after != before {
		t.Errorf("the backend changed another program's nft table:\n%s\nbefore:\n%s", after, before)
	}
}

// testOwnMark verifies that Services do not affect packets that the host sends with the daemon's own mark. The daemon
// connects to its API server over TCP, and no Service may intercept these connections.
func testOwnMark(t *testing.T, s *suite) {
	ses := s.startClean(t)
	s.resetServiceConnections(t)
	p := ses.syncText(t, `
service forwarding
  for TCP
  cluster pod-a far-a
  ClusterIP      cluster-1:80   all=cluster+snat
  ExternalIP     external-1:80  all=cluster
  ExternalIP     node-3:80      all=cluster
  LoadBalancerIP lb-1:80        from client-a all=cluster
  NodePort       30080          all=cluster+snat
service sticky
  for TCP
  affinity 1h
  cluster pod-a far-a
  ClusterIP      cluster-2:80   all=cluster
  ExternalIP     external-2:80  all=cluster
service rejecting
  for TCP
  ClusterIP      cluster-3:80   all=reject
  ExternalIP     external-3:80  all=reject
  ExternalIP     node-3:81      all=reject
  NodePort       30083          all=reject
service dropping
  for TCP
  ClusterIP      cluster-4:80   all=drop
  ExternalIP     external-4:80  all=drop
  ExternalIP     node-3:82      all=drop
  NodePort       30084          all=drop
`)
	met := map[plan.Verdict]int{}
	for _, r := range rowsOf(p, p.Services) {
		if r.source != hostName || r.unbound || r.to.Addr().IsLoopback() {
			continue // the gateway has no route to an unbound socket's IPv6 address
		}
		met[p.Decide(r.packet()).Verdict]++
		r.mark = proxiers.OwnMark(silentEnv().MasqueradeBit)
		want, server := netlab.Reset, "" // the gateway resets the connection
		if slices.Contains(p.Node.HostAddrs, r.to.Addr()) {
			want, server = netlab.Served, selfName
			if err := s.world.listen(r.to, r.protocol); err != nil {
				t.Fatal(err)
			}
		}
		if outcome := s.world.Node.Connect(r.flow(5 * time.Second)); outcome.Result != want ||
			outcome.Server != server {
			t.Errorf("connection with the daemon's own mark, %s: %s", r, outcome)
		}
	}
	for _, v := range []plan.Verdict{plan.Forward, plan.Reject, plan.Drop} {
		if met[v] < 2*len(families) {
			t.Errorf("the test opened only %d connections with the verdict %s", met[v], v)
		}
	}
}

// resetServiceConnections makes the Service addresses local to the gateway until the test ends. Because no server
// listens on these addresses, the gateway then resets connections to them. Otherwise, the gateway would send only one
// "unreachable" message per second over IPv4.
func (s *suite) resetServiceConnections(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"cluster", "external", "lb"} {
		for _, f := range families {
			route := func(do string) error {
				to := netip.PrefixFrom(mustAddress(kind+"-1", f),
					map[plan.Family]int{plan.IPv4: 24, plan.IPv6: 64}[f]).Masked()
				return s.world.Gateway.Command(context.WithoutCancel(t.Context()), "ip", "route", do, "local",
					to.String(), "dev", "lo").Run()
			}
			if err := route("add"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := route("del"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func passing(p *plan.Plan, rows []row) (kept []row) {
	for _, r := range rows {
		if d := p.Decide(r.packet()); d.Verdict == plan.Forward {
			kept = append(kept, r)
		}
	}
	return kept
}

func (s *suite) foreign(t *testing.T) {
	t.Helper()
	s.nftRules(t, foreignTable)
	t.Cleanup(func() { s.nftRules(t, "delete table inet foreign") })
}

func (s *suite) nftRules(t *testing.T, rules string) {
	t.Helper()
	cmd := s.world.Node.Command(cleanupContext(t), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

func (s *suite) nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.world.Node.Command(cleanupContext(t), "nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}

var packetsCounted = regexp.MustCompile(`packets (\d+)`)

func (s *suite) counter(t *testing.T, name string) (packets int) {
	t.Helper()
	text := s.nft(t, "list", "counter", "inet", "foreign", name)
	m := packetsCounted.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("counter %s: %s", name, text)
	}
	if _, err := fmt.Sscan(m[1], &packets); err != nil {
		t.Fatal(err)
	}
	return packets
}
