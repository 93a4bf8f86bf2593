package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

func TestForeignRulesAreAskedAboutThePlan(t *testing.T) {
	h, f := testHost()
	endpoint := addr("10.244.1.11")
	h.Rules = func(_ context.Context, q firewall.Question) []fault.Fault {
		link, source := q.Host.Route(endpoint)
		if q.Plan != h.Plan || q.MasqueradeBit != h.Config.Proxy.MasqueradeBit || link != "eth0" || source != addr("192.0.2.10") {
			t.Errorf("asked %+v; the endpoint is behind %q, from %s", q, link, source)
		}
		return []fault.Fault{problem("nft ...", "it drops")}
	}
	wants(t, h, "firewall", "problem: it drops | nft ...")
	if _, err := h.Way(endpoint); err != nil {
		t.Fatal(err)
	}
	clear(f.ways)
	if link, source := (&links{host: h}).Route(endpoint); link != "" || source.IsValid() {
		t.Errorf("without a route the endpoint is behind %q, from %s", link, source)
	}
	if link := (&links{host: h}).LinkOf(addr("127.0.0.1")); link != "lo" {
		t.Errorf("127.0.0.1 is on %q", link)
	}
}

// To know the links of many addresses costs little more than to know that of one: the daemon asks each minute.
func TestLinksOfManyAddresses(t *testing.T) {
	l := newLab(t)
	var batch strings.Builder
	var all []netip.Addr
	for i := range 400 {
		a := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		all = append(all, a)
		fmt.Fprintf(&batch, "addr add %s/32 dev v0\n", a)
	}
	l.sh("ip -batch - <<'E'\n" + batch.String() + "E")
	cost := func(addrs []netip.Addr) (least time.Duration) {
		for range 3 {
			known := &links{host: l.Host}
			start := cpuTime(t)
			for _, a := range addrs {
				if link := known.LinkOf(a); link != "v0" {
					t.Fatalf("%s is on %q", a, link)
				}
			}
			if took := cpuTime(t) - start; least == 0 || took < least {
				least = took
			}
		}
		return least
	}
	if one, many := cost(all[:1]), cost(all); many > 20*one+10*time.Millisecond {
		t.Errorf("%d addresses take %s, and one takes %s", len(all), many, one)
	}
}
