package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// cleanup removes the backend's rules and chains. If iptables has no tables, cleanup does not run any program.
func cleanup(ctx context.Context, v xtables.Variant, env proxiers.Env) error {
	for _, f := range env.Families {
		names, err := xtables.Tables(v, f)
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
		}
		if err == nil && len(names) > 0 {
			err = cleanupFamily(ctx, v, f, env)
		}
		if err != nil {
			return fmt.Errorf("clean up %s: %w", f, err)
		}
	}
	return nil
}

// cleanupFamily removes Edgeway's rules from the built-in chains, and then the chains that these rules jumped to. If
// the built-in chains contain no Edgeway rule, the chains with Edgeway's names belong to kube-proxy, unless all of them
// are empty (after "iptables -F"). If other programs' rules also jump to Edgeway's chains, kube-proxy has taken the
// chains over.
func cleanupFamily(ctx context.Context, v xtables.Variant, f plan.Family, env proxiers.Env) error {
	tools, err := xtables.Open(ctx, v, f)
	if err != nil {
		return err
	}
	in, chains, rules, foreign := xtables.NewInput(), []xtables.ChainID(nil), 0, 0
	for _, table := range tables() {
		found, err := read(ctx, tools, table)
		if err != nil {
			return err
		}
		for chain, jumps := range found.jumps {
			for _, r := range jumps {
				if isOwnJump(r) {
					in.AddBuiltinCommand(xtables.ChainID{Table: table, Name: chain}, "-D", r)
				} else {
					foreign++
				}
			}
		}
		chains, rules, foreign = append(chains, found.chains...), rules+found.rules, foreign+found.foreign
	}
	if foreign == 0 && (in.Lines > 0 || rules == 0) {
		for _, id := range chains {
			in.Remove(id)
		}
	} else if len(chains) > 0 {
		env.Logger.Info("keeping chains that another program may use", "variant", string(v),
			"family", f.String(), "chains", len(chains), "rules_of_others_that_use_them", foreign)
	}
	if in.Lines == 0 {
		return nil
	}
	return tools.Restore(ctx, in.Bytes())
}

// tableContents describes the chains with Edgeway's names in one table.
type tableContents struct {
	chains []xtables.ChainID
	// rules is the total number of rules in the chains.
	rules int
	// jumps holds the rules that jump from built-in chains to Edgeway's chains, by built-in chain and in order. foreign
	// counts the rules that jump from other programs' chains to Edgeway's chains.
	jumps   map[string][]string
	foreign int
}

func read(ctx context.Context, tools *xtables.Tools, table string) (*tableContents, error) {
	f := &tableContents{jumps: map[string][]string{}}
	return f, tools.Save(ctx, table, func(l xtables.Line) {
		switch {
		case isOwnChain(l.Chain) && l.IsRule:
			f.rules++
		case isOwnChain(l.Chain):
			f.chains = append(f.chains, xtables.ChainID{Table: table, Name: l.Chain})
		case !isOwnChain(xtables.Target(l.Rule)):
		case builtin(l.Chain):
			f.jumps[l.Chain] = append(f.jumps[l.Chain], l.Rule)
		default:
			f.foreign++
		}
	})
}

var ruleComment = regexp.MustCompile(`--comment ("[^"]*"|\S+)`)

// isOwnJump reports whether a rule in a built-in chain belongs to this backend.
func isOwnJump(rule string) bool {
	return isOwnChain(xtables.Target(rule)) && strings.Contains(ruleComment.FindString(rule), owner)
}
