package doctor

import (
	"context"
	"slices"
	"testing"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

func TestRulesCheckGetsPlanAndLinks(t *testing.T) {
	h, f := testHost()
	h.Rules = func(_ context.Context, q firewall.Requirements) []fault.Fault {
		if links := q.Links(); q.Plan != h.Plan || !slices.Equal(links, []string{"eth0"}) {
			t.Errorf("asked %+v; the endpoint is behind %q", q, links)
		}
		return []fault.Fault{problem("nft ...", "it drops")}
	}
	wantFindings(t, h, "firewall", "problem: it drops | nft ...")
	clear(f.hops)
	if links := h.endpointLinks(); len(links) != 0 {
		t.Errorf("without a route the endpoint is behind %q", links)
	}
}
