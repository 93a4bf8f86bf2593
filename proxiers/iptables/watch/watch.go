// Package watch detects when another program changes or removes Edgeway's iptables rules. For iptables-nft, the package
// receives the kernel's notifications, and for iptables-legacy, it polls the tables.
package watch

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// Watcher watches the tables of one iptables variant. A Watcher is safe for concurrent use.
type Watcher interface {
	// RunCommit calls commit, which restores the given number of tables. RunCommit does not report the changes that
	// commit makes, but reports changes by other programs before and during the restore. The parameter big is true if
	// the restore changes more than about a thousand rules.
	RunCommit(tables int, big bool, commit func() error) error
	// Forget discards all changes that the Watcher has detected and reported so far. A full sync calls Forget first.
	Forget()
	// Run reports changes until the caller calls Close.
	Run()
	Close() error
}

// Options configures a Watcher.
type Options struct {
	Tables []Table
	// IsOwnChain reports whether a chain belongs to Edgeway. IsBuiltin reports whether a chain is a built-in chain.
	IsOwnChain, IsBuiltin func(chain string) bool
	// The Watcher calls Notify at most once between two calls to Forget, without holding a lock.
	Notify func(reason string)
	// Entries returns the number of entries that Edgeway's chains and rules occupy in an iptables-legacy table: one for
	// each rule, and two for each chain. settled is false if the number is unknown. Only a pollWatcher calls Entries
	// and Compare, and it holds its lock during each call. RunCommit calls Compare only after commit has returned.
	Entries func(Table) (n int, settled bool)
	// Compare reads a table from the kernel and compares it with the rules that Edgeway wrote. The Watcher calls
	// Compare only if Entries returns true for settled. reason is "" if the table contains exactly the rules that
	// Edgeway wrote.
	Compare func(Table) (reason string)
}

// Table identifies a table in one family.
type Table struct {
	plan.Family
	Name string
}

func (t Table) String() string { return fmt.Sprintf("table %s of %s", t.Name, t.Family) }

// New returns a Watcher for a variant in the calling thread's network namespace.
func New(v xtables.Variant, o Options) (Watcher, error) {
	if v == xtables.Legacy {
		return newPollWatcher(o)
	}
	return newNotificationWatcher(o)
}

// golang.org/x/sys/unix does not define the following message types. Since Linux 6.3, a program can delete an object
// with "destroy", which does not fail if the object does not exist.
const (
	msgDestroyTable = 0x1a
	msgDestroyChain = 0x1b
	msgDestroyRule  = 0x1c
)

// newNotificationWatcher returns a watcher that receives the kernel's notifications.
//
// iptables-nft-restore (1.8.9) sends one transaction for each table that its input changes. Each transaction also
// creates missing built-in chains.
//
// The watcher does not detect the renaming of an Edgeway chain, because the notification contains only the new name.
// The next full sync, or the next change to the chain, restores the name.
func newNotificationWatcher(o Options) (*netlink.Watcher, error) {
	m, err := netlink.NewWatcher(netlink.WatcherOptions{AffectedObject: o.affectedObject, Notify: o.Notify})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notifications: %w", err)
	}
	return m, nil
}

// affectedObject describes the Edgeway chain or table that a notification is about, or returns "" if the notification
// is about another program's object. Docker, the kubelet and other programs often change the same tables.
func (o Options) affectedObject(m netlink.Message) (what string) {
	// In every nftables message, attribute 1 is the table name.
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
		if name := text(m.Attrs, unix.NFTA_CHAIN_NAME); o.IsOwnChain(name) {
			chain = name
		}
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, msgDestroyRule:
		if name := text(m.Attrs, unix.NFTA_RULE_CHAIN); o.IsOwnChain(name) ||
			o.IsBuiltin(name) && o.jumpsToOwnChain(m.Attrs) {
			chain = name
		}
	}
	if chain == "" {
		return ""
	}
	return fmt.Sprintf("chain %s in %s", chain, o.Tables[i])
}

// jumpsToOwnChain reports whether a rule jumps to one of Edgeway's chains. If the notification does not contain the
// rule's expressions, jumpsToOwnChain returns true, because an unnecessary full sync is better than a missed one.
func (o Options) jumpsToOwnChain(rule []byte) bool {
	chains, whole := netlink.JumpTargets(rule)
	return !whole || slices.ContainsFunc(chains, o.IsOwnChain)
}

// text returns the value of the first attribute of the given type, or "" if there is none.
func text(attrs []byte, typ uint16) string { return string(netlink.Text(netlink.Attr(attrs, typ))) }
