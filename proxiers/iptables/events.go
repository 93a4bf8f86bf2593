package iptables

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// Kinds of notices that golang.org/x/sys/unix lacks. Since Linux 6.3 a deletion may be a "destroy", which is
// no error when there is nothing.
const (
	msgDestroyTable = 0x1a
	msgDestroyChain = 0x1b
	msgDestroyRule  = 0x1c
)

// attrRuleChain is the chain's name in a notice of a rule, attrChainName in that of a chain.
const (
	attrRuleChain = unix.NFTA_RULE_CHAIN
	attrChainName = unix.NFTA_CHAIN_NAME
)

// events is the watcher of iptables-nft: it hears the kernel's notices.
//
// iptables-nft-restore makes one transaction of each table in its input; chains of the table that the
// kernel lacks are made in the same one (1.8.9). A table in which nothing changes makes none.
//
// A chain of ours that is renamed is not noticed: the notice has the new name only. The next full sync,
// or the next change of that chain, mends it.
type events struct {
	monitor  *nfnetlink.Monitor
	families []plan.Family
}

func newEvents(o watchOptions) (watcher, error) {
	e := &events{families: o.families}
	var err error
	e.monitor, err = nfnetlink.NewMonitor(nfnetlink.MonitorOptions{Concerns: e.concerns, Notify: o.notify})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notices: %w", err)
	}
	return e, nil
}

func (e *events) own(tables int, big bool, commit func() error) error {
	return e.monitor.Own(tables, big, commit)
}

func (e *events) forget()      { e.monitor.Forget() }
func (e *events) run()         { e.monitor.Run() }
func (e *events) close() error { return e.monitor.Close() }

// concerns says what of ours a notice is about; empty for what other programs do with their own. Docker, the
// kubelet and others work in the same tables all the time.
func (e *events) concerns(m nfnetlink.Message) (what string) {
	i := slices.IndexFunc(e.families, func(f plan.Family) bool { return nfnetlink.Family(f) == m.Family })
	table := text(m.Attrs, nfnetlink.AttrTable)
	if i < 0 || !slices.Contains(tables, table) {
		return ""
	}
	family := e.families[i]
	switch m.Kind {
	case unix.NFT_MSG_DELTABLE, msgDestroyTable:
		return fmt.Sprintf("table %s of %s", table, family)
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, msgDestroyChain:
		if name := text(m.Attrs, attrChainName); ours(name) {
			return fmt.Sprintf("chain %s in table %s of %s", name, table, family)
		}
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, msgDestroyRule:
		if name := text(m.Attrs, attrRuleChain); ours(name) || builtIn(name) && leadsToOurs(m.Attrs) {
			return fmt.Sprintf("chain %s in table %s of %s", name, table, family)
		}
	}
	return ""
}

// builtIn says that we have a rule in the chain of this name, which is not ours.
func builtIn(chain string) bool {
	return slices.ContainsFunc(hooks(), func(h hook) bool { return h.chain == chain })
}

// leadsToOurs says that a rule jumps to a chain of ours, by the verdict in it: iptables-nft writes targets that
// are extensions as compat expressions, but a jump to a chain as nftables' own (seen with 1.8.9 and 1.8.13).
//
// Later kernels' notices of deleted chains, sets and tables have little more than names; those of deleted rules
// are exempt, because nft monitor shows them (seen with 6.1, 6.18 and 7.2). Should a kernel leave out the
// expressions, the rule counts as ours: one full sync too many is better than one too few.
func leadsToOurs(rule []byte) bool {
	list := nfnetlink.Attr(rule, unix.NFTA_RULE_EXPRESSIONS)
	if list == nil {
		return true
	}
	for _, expression := range nfnetlink.EachAttr(list) {
		if text(expression, unix.NFTA_EXPR_NAME) != "immediate" {
			continue
		}
		data := nfnetlink.Attr(nfnetlink.Attr(expression, unix.NFTA_EXPR_DATA), unix.NFTA_IMMEDIATE_DATA)
		if ours(text(nfnetlink.Attr(data, unix.NFTA_DATA_VERDICT), unix.NFTA_VERDICT_CHAIN)) {
			return true
		}
	}
	return false
}

// text gives the text in the first attribute of the type; empty when there is none.
func text(attrs []byte, typ uint16) string { return string(nfnetlink.Text(nfnetlink.Attr(attrs, typ))) }
