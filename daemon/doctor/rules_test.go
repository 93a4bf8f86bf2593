package doctor

import (
	"context"
	"testing"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/doctor/firewall"
)

func TestForeignRulesAreAskedAboutThePlan(t *testing.T) {
	h, f := testHost()
	endpoint := addr("10.244.1.11")
	h.Rules = func(_ context.Context, q firewall.Question) []finding.Finding {
		link, source := q.Host.Route(endpoint)
		if q.Plan != h.Plan || q.MasqueradeBit != h.Config.Proxy.MasqueradeBit || link != "eth0" || source != addr("192.0.2.10") {
			t.Errorf("asked %+v; the endpoint is behind %q, from %s", q, link, source)
		}
		return []finding.Finding{problem("nft ...", "it drops")}
	}
	wants(t, h, "firewall", "problem: it drops | nft ...")
	if _, err := h.Way(endpoint); err != nil {
		t.Fatal(err)
	}
	clear(f.ways)
	if link, source := (links{h}).Route(endpoint); link != "" || source.IsValid() {
		t.Errorf("without a route the endpoint is behind %q, from %s", link, source)
	}
	if link := (links{h}).LinkOf(addr("127.0.0.1")); link != "lo" {
		t.Errorf("127.0.0.1 is on %q", link)
	}
}
