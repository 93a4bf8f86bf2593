package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/internal/nfttable"
)

// readTimeout is the maximum time that the watcher needs to read pending notifications.
const readTimeout = 50 * time.Millisecond

func TestDriftIsReportedAndRepaired(t *testing.T) {
	newHost(t)
	p, drift := testProxier(t)
	full := newPlan(testNode(), webServices()...)
	apply(t, p, nil, full)
	want := kernelState(t, p)
	for _, script := range []string{
		"flush ruleset",
		"delete table ip6 edgeway",
		"add element ip edgeway cluster-ips { 198.51.100.9 }",
		"delete element ip edgeway services { 10.96.0.2 . tcp . 80 }",
		"flush chain ip edgeway services",
		"insert rule ip edgeway nat-output accept",
		"add chain ip edgeway nat-prerouting { policy drop; }",
	} {
		before := drift.count()
		nft(t, script)
		drift.wait(t)
		// The watcher must not report drift again before the full sync.
		nft(t, "add table ip other\nadd table ip edgeway\nadd chain ip edgeway more")
		time.Sleep(readTimeout)
		if n := drift.count() - before; n != 1 {
			t.Errorf("%s: reported %d times, want once", script, n)
		}
		apply(t, p, nil, full)
		if diff := firstDifference(want, strings.ReplaceAll(kernelState(t, p), "ip other", "")); diff != "" {
			t.Errorf("%s: not repaired: %s", script, diff)
		}
	}
}

func TestDriftBeforePartialSync(t *testing.T) {
	newHost(t)
	p, drift := testProxier(t)
	full := newPlan(testNode(), webServices()...)
	apply(t, p, nil, full)
	nft(t, "delete element ip edgeway cluster-ips { 10.96.0.3 }")
	apply(t, p, full, newPlan(full.Node, webServices()[:4]...))
	if drift.count() != 1 {
		t.Errorf("reported %d times, want once", drift.count())
	}
	if !strings.Contains(nft(t, "list set ip edgeway cluster-ips"), "10.96.0.3") {
		t.Error("the change was written on top of what another program did")
	}
}

func TestOtherTablesAreNoDrift(t *testing.T) {
	newHost(t)
	p, drift := testProxier(t)
	apply(t, p, nil, newPlan(testNode(), webServices()...))
	for i := range 20 {
		nft(t, fmt.Sprintf("add table ip other\nadd set ip other s%d { type ipv4_addr; }\nadd element ip other s%d { 192.0.2.1 }\nadd table inet edgeway", i, i))
	}
	time.Sleep(readTimeout)
	if drift.count() != 0 {
		t.Errorf("reported: %q", drift.reasons)
	}
}

// The caller skips Apply if nothing changed, so Change.Prev may be a plan that the backend never received. Even then,
// the sync must be partial.
func TestSyncFromSkippedPlanIsPartial(t *testing.T) {
	newHost(t)
	p, _ := testProxier(t)
	full := newPlan(testNode(), webServices()...)
	apply(t, p, nil, full)
	rules := ruleHandles(t)
	skipped := *full
	apply(t, p, &skipped, newPlan(full.Node, webServices()[:4]...))
	if after := ruleHandles(t); !slices.Equal(after, rules) {
		t.Error("the sync was a full one")
	}
}

// ruleHandles returns the handles of the rules in the fixed IPv4 chains. The kernel assigns a new handle to a rewritten
// rule.
func ruleHandles(t *testing.T) (handles []uint64) {
	t.Helper()
	c, err := netlink.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Dump(unix.NFT_MSG_GETRULE, unix.NFPROTO_IPV4, nil, func(m netlink.Message) error {
		chain := string(netlink.Text(netlink.Attr(m.Attrs, unix.NFTA_RULE_CHAIN)))
		if slices.ContainsFunc(schema(false).Chains, func(c nfttable.Chain) bool { return c.Name == chain }) {
			handles = append(handles, netlink.Uint64(netlink.Attr(m.Attrs, unix.NFTA_RULE_HANDLE)))
		}
		return nil
	})
	if err != nil || len(handles) == 0 {
		t.Fatalf("%d rules, error %v", len(handles), err)
	}
	return handles
}
