package firewall

import (
	"slices"
	"testing"
)

func TestRulesThatMustSeeEveryPacket(t *testing.T) {
	const text = `table inet shaper {
	set limit rate {
		type ipv4_addr
	}

	chain forward {
		type filter hook forward priority filter; policy accept;
		ip daddr 10.244.0.0/16 limit rate over 10 mbytes/second drop
		ip saddr 10.244.0.0/16 limit rate over 10 mbytes/second drop
		limit rate 3/minute log prefix "seen "
		counter accept
	}

	chain pre {
		tcp dport 80 tproxy to :8080
	}
}
`
	want := []string{"limit rate in the chain forward of the inet table shaper", "tproxy in the chain pre of the inet table shaper"}
	if got := needfulIn(text, "of the inet table shaper"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
