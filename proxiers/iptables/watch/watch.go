// Package watch detects when another program changes or removes Edgeway's rules in the tables of iptables. The
// package receives the kernel's notices for iptables-nft, and polls the tables for iptables-legacy.
package watch

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// Watcher watches the tables of one variant. All methods may be called from any goroutine.
type Watcher interface {
	// Own calls commit, which runs a restore of the given number of tables, and reports changes that other programs
	// make before and during the restore. big means that the restore changes more than about a thousand rules.
	Own(tables int, big bool, commit func() error) error
	// Forget discards all changes detected and reported so far. A full sync calls Forget at its start.
	Forget()
	// Run reports changes until Close is called.
	Run()
	Close() error
}

// Options configures a Watcher.
type Options struct {
	// Tables lists the tables in which Edgeway has rules.
	Tables []Table
	// Ours reports whether a chain with this name is Edgeway's. Builtin reports whether a chain is built in.
	Ours, Builtin func(chain string) bool
	// Notify is called without any lock held. Notify is not called again until Forget is called.
	Notify func(reason string)
	// Entries returns the number of entries that Edgeway's chains and rules occupy in an iptables-legacy table: one
	// for each rule, and two for each chain. settled is false if the number is unknown. Only poll calls Entries and
	// Intact, with its lock held. Own calls Entries and Intact after the commit, so that the changes of the commit
	// count.
	Entries func(Table) (n int, settled bool)
	// Intact reads a settled table from the kernel and compares the table with the rules that Edgeway wrote. reason
	// is empty if there is no difference.
	Intact func(Table) (reason string)
}

// Table is a table of one family.
type Table struct {
	plan.Family
	Name string
}

func (t Table) String() string { return fmt.Sprintf("table %s of %s", t.Name, t.Family) }

// New returns a Watcher for a variant, in the network namespace of the calling thread.
func New(v xtables.Variant, o Options) (Watcher, error) {
	if v == xtables.Legacy {
		return newPoll(o)
	}
	return newEvents(o)
}

// The kinds of notices that golang.org/x/sys/unix lacks. Since Linux 6.3 a program may delete with "destroy", which
// does not fail if there is nothing to delete.
const (
	msgDestroyTable = 0x1a
	msgDestroyChain = 0x1b
	msgDestroyRule  = 0x1c
)

// newEvents subscribes to the kernel's notices.
//
// iptables-nft-restore sends one transaction for each table in its input, which also creates the chains that the
// kernel lacks (1.8.9). iptables-nft-restore sends no transaction for a table in which nothing changes.
//
// The watcher does not detect that one of Edgeway's chains was renamed, because the notice contains only the new
// name. The next full sync, or the next change of that chain, restores the name.
func newEvents(o Options) (*netlink.Watcher, error) {
	m, err := netlink.NewWatcher(netlink.WatcherOptions{Concerns: o.concerns, Notify: o.Notify})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notices: %w", err)
	}
	return m, nil
}

// concerns describes the Edgeway chain or table that a notice is about, or returns "" if the notice is about objects
// of other programs. Docker, the kubelet and other programs use the same tables all the time.
func (o Options) concerns(m netlink.Message) (what string) {
	// Attribute 1 of every message is the name of the table.
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

// leadsToOurs reports whether a rule jumps to one of Edgeway's chains. If the notice lacks the rule's expressions,
// the rule counts as Edgeway's, because an unnecessary full sync is better than a missing one.
func (o Options) leadsToOurs(rule []byte) bool {
	chains, whole := netlink.Jumps(rule)
	return !whole || slices.ContainsFunc(chains, o.Ours)
}

// text returns the text in the first attribute of this type, or "" if there is none.
func text(attrs []byte, typ uint16) string { return string(netlink.Text(netlink.Attr(attrs, typ))) }
