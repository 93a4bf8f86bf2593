// Package watch notices that another program changed or removed rules of ours in the tables of iptables: for
// iptables-nft by the kernel's notices, for iptables-legacy by a poll.
package watch

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// Watcher is one of either. All methods may be called from any goroutine.
type Watcher interface {
	// Own runs a restore of ours over that many tables, and reports what others did before or meanwhile.
	// big says that it changes more than about a thousand rules.
	Own(tables int, big bool, commit func() error) error
	// Forget drops what was noticed so far, and what was reported: a full sync begins.
	Forget()
	// Run reports until Close.
	Run()
	Close() error
}

// Options are what a Watcher is made with.
type Options struct {
	// Tables are those in which we have rules.
	Tables []Table
	// Ours says that a chain is ours by its name, Builtin that it is a built-in one in which we have rules.
	Ours, Builtin func(chain string) bool
	// Notify is called without any lock held. After it there is silence until Forget.
	Notify func(reason string)
	// Entries is how many entries a table of iptables-legacy has for what we wrote: one for each rule, and two
	// for each chain. settled false says that it is not known now. Only the poll calls it, and Intact, with its lock
	// held: from Run, and from Own after the commit, so that what the commit changed counts.
	Entries func(Table) (n int, settled bool)
	// Intact reads a table that is settled from the kernel and compares it with what we wrote: the reason is empty
	// when it is so.
	Intact func(Table) (reason string)
}

// Table is a table of one family.
type Table struct {
	plan.Family
	Name string
}

func (t Table) String() string { return fmt.Sprintf("table %s of %s", t.Name, t.Family) }

// New makes the Watcher for a variant, over the network namespace of the calling thread.
func New(v xtables.Variant, o Options) (Watcher, error) {
	if v == xtables.Legacy {
		return newPoll(o)
	}
	return newEvents(o)
}

// Kinds of notices that golang.org/x/sys/unix lacks. Since Linux 6.3 a deletion may be a "destroy", which is
// no error when there is nothing.
const (
	msgDestroyTable = 0x1a
	msgDestroyChain = 0x1b
	msgDestroyRule  = 0x1c
)

// newEvents subscribes to the kernel's notices.
//
// iptables-nft-restore makes one transaction of each table in its input; chains of the table that the
// kernel lacks are made in the same one (1.8.9). A table in which nothing changes makes none.
//
// A chain of ours that is renamed is not noticed: the notice has the new name only. The next full sync,
// or the next change of that chain, mends it.
func newEvents(o Options) (*netlink.Watcher, error) {
	m, err := netlink.NewWatcher(netlink.WatcherOptions{Concerns: o.concerns, Notify: o.Notify})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notices: %w", err)
	}
	return m, nil
}

// concerns says what of ours a notice is about; empty for what other programs do with their own. Docker, the
// kubelet and others work in the same tables all the time.
func (o Options) concerns(m netlink.Message) (what string) {
	// Attribute 1 of every message is the table's name.
	table := text(m.Attrs, unix.NFTA_TABLE_NAME)
	i := slices.IndexFunc(o.Tables,
		func(t Table) bool { return t.Name == table && netlink.Family(t.Family) == m.Family })
	if i < 0 {
		return ""
	}
	chain := ""
	switch m.Kind {
	case unix.NFT_MSG_DELTABLE, msgDestroyTable:
		return o.Tables[i].String()
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, msgDestroyChain:
		if name := text(m.Attrs, unix.NFTA_CHAIN_NAME); o.Ours(name) {
			chain = name
		}
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, msgDestroyRule:
		if name := text(m.Attrs, unix.NFTA_RULE_CHAIN); o.Ours(name) || o.Builtin(name) && o.leadsToOurs(m.Attrs) {
			chain = name
		}
	}
	if chain == "" {
		return ""
	}
	return fmt.Sprintf("chain %s in %s", chain, o.Tables[i])
}

// leadsToOurs reports whether a rule jumps to a chain of ours. If a kernel leaves the expressions out, the rule counts
// as ours: one full sync too many is better than one too few.
func (o Options) leadsToOurs(rule []byte) bool {
	chains, whole := netlink.Jumps(rule)
	return !whole || slices.ContainsFunc(chains, o.Ours)
}

// text gives the text in the first attribute of the type; empty when there is none.
func text(attrs []byte, typ uint16) string { return string(netlink.Text(netlink.Attr(attrs, typ))) }
