package watch

import (
	"strings"
	"sync"
	"testing"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/test/iptablestest"
)

func TestFirstRestoreIsOneTransactionPerTable(t *testing.T) {
	iptablestest.NewHost(t)
	for _, c := range []struct {
		tables int
		want   bool
	}{{1, true}, {2, false}} {
		iptablestest.Run(t, "", "nft", "flush", "ruleset")
		w := &watchedHost{variant: xtables.NFT, reports: make(chan string, 10)}
		o := testOptions()
		o.Notify = func(reason string) { w.reports <- reason }
		e, err := New(xtables.NFT, o)
		if err != nil {
			t.Fatal(err)
		}
		err = e.RunCommit(c.tables, false, func() error {
			iptablestest.Run(t, watchedRules, "iptables-nft-restore", "--noflush")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if c.want {
			w.wantReport(t, "one transaction more than promised")
		} else {
			w.wantSilence(t, "as many transactions as tables")
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// recordNotifications calls the function do, and returns the kernel's notifications about the changes that do makes.
func recordNotifications(t *testing.T, do func()) (notices []netlink.Message) {
	t.Helper()
	var mu sync.Mutex
	m, err := netlink.NewWatcher(netlink.WatcherOptions{
		Notify: func(string) {},
		AffectedObject: func(m netlink.Message) string {
			mu.Lock()
			defer mu.Unlock()
			m.Attrs = append([]byte(nil), m.Attrs...)
			notices = append(notices, m)
			return ""
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	do()
	m.Forget() // Forget reads the pending notifications
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return notices
}

// The kernel's notification about a deleted rule contains the rule's expressions, which the watcher needs.
func TestDeletedRuleNoticeHasVerdict(t *testing.T) {
	iptablestest.NewHost(t)
	iptablestest.Run(t, watchedRules, "iptables-nft-restore")
	iptablestest.Run(t, "", "iptables-nft", "-t", "nat", "-A", "PREROUTING", "-j", "ACCEPT")
	rules := 0
	for _, m := range recordNotifications(t, func() {
		iptablestest.Run(t, "", "iptables-nft", "-t", "nat", "-F", "PREROUTING")
	}) {
		if m.Kind != unix.NFT_MSG_DELRULE {
			continue
		}
		if netlink.Attr(m.Attrs, unix.NFTA_RULE_EXPRESSIONS) == nil {
			t.Error("a deleted rule without its expressions")
		}
		if got, want := testOptions().jumpsToOwnChain(m.Attrs), rules == 0; got != want {
			t.Errorf("rule %d leads to a chain of ours: %v, want %v", rules, got, want)
		}
		rules++
	}
	if rules != 2 {
		t.Errorf("%d notices of deleted rules, want 2", rules)
	}
}

// FuzzAffectedObject passes variants of real notifications to affectedObject. affectedObject may attribute a
// notification to Edgeway only if the notification contains the name of an Edgeway chain or table.
func FuzzAffectedObject(f *testing.F) {
	attr := func(typ uint16, data string) string {
		b, err := mdnetlink.MarshalAttributes([]mdnetlink.Attribute{{Type: typ, Data: []byte(data)}})
		if err != nil {
			f.Fatal(err)
		}
		return string(b)
	}
	verdict := attr(unix.NFTA_DATA_VERDICT, attr(unix.NFTA_VERDICT_CHAIN, "KUBE-SERVICES\x00"))
	immediate := attr(unix.NFTA_EXPR_NAME, "immediate\x00") + attr(unix.NFTA_EXPR_DATA,
		attr(unix.NFTA_IMMEDIATE_DATA, verdict))
	jump := []byte(attr(unix.NFTA_RULE_TABLE, "nat\x00") + attr(unix.NFTA_RULE_CHAIN, "PREROUTING\x00") +
		attr(unix.NFTA_RULE_EXPRESSIONS, attr(unix.NFTA_LIST_ELEM, immediate)))
	e := testOptions()
	if e.affectedObject(netlink.Message{Kind: unix.NFT_MSG_DELRULE, Family: unix.NFPROTO_IPV4, Attrs: jump}) == "" {
		f.Fatal("the jump is not seen")
	}
	f.Add(uint16(unix.NFT_MSG_DELRULE), jump)
	f.Add(uint16(unix.NFT_MSG_DELTABLE), jump[:8])
	f.Add(uint16(unix.NFT_MSG_NEWCHAIN), []byte("\x08\x00\x01\x00nat\x00\x0b\x00\x03\x00DOCKER\x00\x00"))
	f.Fuzz(func(t *testing.T, kind uint16, attrs []byte) {
		text := string(attrs)
		what := e.affectedObject(netlink.Message{Kind: kind, Family: unix.NFPROTO_IPV6, Attrs: attrs})
		if what != "" && !strings.Contains(text, "nat") && !strings.Contains(text, "filter") {
			t.Errorf("%q in %q", what, text)
		}
		if strings.HasPrefix(what, "chain") && !strings.Contains(text, "KUBE-") &&
			strings.Contains(text, "PREROUTING") && netlink.Attr(attrs, unix.NFTA_RULE_EXPRESSIONS) != nil {
			t.Errorf("%q in %q", what, text)
		}
	})
}
