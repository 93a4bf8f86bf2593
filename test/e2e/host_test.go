package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// When a firewall reloads, it can flush all rules. The API server sends no event when a firewall flushes the host's
// rules, so the daemon must detect the flush itself.
func TestFlushedRulesAreRestoredWithinSecond(t *testing.T) {
	l, d := running(t)
	_, _, nodePort := d.shop()
	for range 3 {
		limit := l.extendLimit(time.Second)
		l.onNode("nft", "flush", "ruleset")
		took := l.waitFor(limit, answersSoon(l.client, nodePort, "ep1"))
		t.Logf("a connection works again after %.0f ms", took.Seconds()*1000)
	}
	l.must(d.healthy())
	l.waitFor(longTimeout, func() error { // the daemon counts a repair shortly after the repair takes effect
		s, err := d.status()
		if err == nil && s.repairs() != 3 {
			err = fmt.Errorf("edgeway status counts %d repairs, want 3", s.repairs())
		}
		return err
	})
}

// The test replaces the node's address, as when a DHCP lease expires and the node gets a new address.
func TestNodePortFollowsNodeAddress(t *testing.T) {
	l, d := running(t)
	_, clusterIP, nodePort := d.shop()
	port := int(netip.MustParseAddrPort(nodePort).Port())

	l.onNode("ip", "addr", "del", nodeAddr+"/24", "dev", "eth0")
	l.onNode("ip", "addr", "add", "192.0.2.77/24", "dev", "eth0")
	l.onNode("ip", "route", "replace", "default", "via", "192.0.2.1")
	took := l.waitFor(longTimeout, answersSoon(l.client, at("192.0.2.77", port), "ep1"))
	t.Logf("NodePort served at the new address after %.0f ms", took.Seconds()*1000)
	l.must(isUnanswered(l.client, nodePort)())
	l.must(answers(l.client, clusterIP, "ep1")())
}

func TestServiceCIDRAddedAtRunTime(t *testing.T) {
	l, _ := running(t)
	l.net.Host("other", netip.MustParseAddr("10.200.0.5"))
	const addr = "10.200.0.5:8080" // no program listens on this address, so the host sends a reset
	l.waitFor(longTimeout, isReset(l.client, addr))

	cidrs := sharedState.admin.Networking.ServiceCIDRs()
	_, err := cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.200.0.0/24"}},
	}, metav1.CreateOptions{})
	l.must(err)
	remove := func() error {
		return cidrs.Delete(cleanupContext(), "more", metav1.DeleteOptions{})
	}
	t.Cleanup(func() { _ = remove() })
	l.waitFor(longTimeout, isSilent(l.client, addr))
	l.must(remove())
	l.waitFor(longTimeout, isReset(l.client, addr))
}
