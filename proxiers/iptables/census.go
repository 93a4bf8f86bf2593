package iptables

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// census says who has rules in one variant, in all tables and both families.
type census struct {
	// own is the number of rules in built-in chains that are this backend's.
	own int
	// foreign is that of saved.
	foreign map[string]int
}

func (c census) empty() bool { return c.own == 0 && len(c.foreign) == 0 }

// takeCensus reads iptables-nft's rules by netlink: its programs would read each Service's chains for it.
func takeCensus(ctx context.Context, v variant) (census, error) {
	c := census{foreign: map[string]int{}}
	for _, f := range hostFamilies() {
		tables, err := tableNames(v, f)
		if err != nil {
			return c, err
		}
		for _, table := range tables {
			if v == nft {
				err = c.addNFT(f, table)
			} else {
				err = c.addLegacy(ctx, f, table)
			}
			if err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

func (c *census) addLegacy(ctx context.Context, f plan.Family, table string) error {
	t, err := openTools(legacy, f)
	if err != nil {
		return err
	}
	s, err := t.save(ctx, table)
	if err != nil {
		return err
	}
	c.own += s.ownJumps
	for chain, n := range s.foreign {
		c.foreign[chain] += n
	}
	return nil
}

func (c *census) addNFT(f plan.Family, table string) error {
	conn, err := nfnetlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	chains, err := nftChains(conn, f, table)
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if ours(chain.name) || chain.use == 0 {
			continue
		}
		filter := nfnetlink.AppendAttr(nil, unix.NFTA_RULE_TABLE, table)
		filter = nfnetlink.AppendAttr(filter, unix.NFTA_RULE_CHAIN, chain.name)
		err := conn.Dump(unix.NFT_MSG_GETRULE, nfnetlink.Family(f), filter, func(m nfnetlink.Message) error {
			to := verdictChain(m.Attrs)
			if chain.base && ours(to) && bytes.Contains(m.Attrs, []byte(owner)) {
				c.own++
				return nil
			}
			c.foreign[blame(chain.name, to, chain.base)]++
			return nil
		})
		if err != nil {
			return fmt.Errorf("rules of chain %s: %w", chain.name, err)
		}
	}
	return nil
}

// nfAccept is the kernel's NF_ACCEPT (netfilter.h), which golang.org/x/sys/unix lacks.
const nfAccept = 1

// nftChain is what nftables says of a chain.
type nftChain struct {
	name string
	// base chains are called by a hook.
	base bool
	// accepts says that the policy is to accept.
	accepts bool
	// use is the number of rules in the chain, and of those that lead to it.
	use uint32
}

func nftChains(c *nfnetlink.Conn, f plan.Family, table string) ([]nftChain, error) {
	var chains []nftChain
	err := c.Dump(unix.NFT_MSG_GETCHAIN, nfnetlink.Family(f), nil, func(m nfnetlink.Message) error {
		if string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, nfnetlink.AttrTable))) != table {
			return nil
		}
		policy := nfnetlink.Attr(m.Attrs, unix.NFTA_CHAIN_POLICY)
		chains = append(chains, nftChain{
			name:    string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, unix.NFTA_CHAIN_NAME))),
			base:    nfnetlink.Attr(m.Attrs, unix.NFTA_CHAIN_HOOK) != nil,
			accepts: nfnetlink.Uint32(policy) == nfAccept,
			use:     nfnetlink.Uint32(nfnetlink.Attr(m.Attrs, unix.NFTA_CHAIN_USE)),
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("chains of table %s: %w", table, err)
	}
	return slices.Clip(chains), nil
}

// verdictChain gives the chain that a rule leads to; empty when there is none.
func verdictChain(rule []byte) string {
	for _, expr := range nfnetlink.EachAttr(nfnetlink.Attr(rule, unix.NFTA_RULE_EXPRESSIONS)) {
		if string(nfnetlink.Text(nfnetlink.Attr(expr, unix.NFTA_EXPR_NAME))) != "immediate" {
			continue
		}
		value := nfnetlink.Attr(nfnetlink.Attr(expr, unix.NFTA_EXPR_DATA), unix.NFTA_IMMEDIATE_DATA)
		if to := nfnetlink.Text(nfnetlink.Attr(nfnetlink.Attr(value, unix.NFTA_DATA_VERDICT), unix.NFTA_VERDICT_CHAIN)); len(to) > 0 {
			return string(to)
		}
	}
	return ""
}
