package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// cleanup needs no program where there is no table.
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

// cleanupFamily removes our rules from the built-in chains, and then the chains that they led to. Without such
// a rule chains are a kube-proxy's, unless they have been emptied ("iptables -F"): then nobody has a use for
// them. Those to which rules of others lead, too, have become a kube-proxy's.
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
				if ownJump(r) {
					in.Builtin(xtables.ChainID{Table: table, Name: chain}, "-D", r)
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
		env.Logger.Info("chains stay: they are not known to be this program's alone", "variant", string(v),
			"family", f.String(), "chains", len(chains), "rules_of_others_that_use_them", foreign)
	}
	if in.Lines == 0 {
		return nil
	}
	return tools.Restore(ctx, in.Bytes())
}

// found is what a table has of chains with names of ours.
type found struct {
	chains []xtables.ChainID
	// rules is the number of rules in them.
	rules int
	// jumps are the rules of built-in chains that lead to them, in their order, and foreign is the number of such rules
	// in chains of others.
	jumps   map[string][]string
	foreign int
}

func read(ctx context.Context, tools *xtables.Tools, table string) (*found, error) {
	f := &found{jumps: map[string][]string{}}
	return f, tools.Save(ctx, table, func(l xtables.Line) {
		switch {
		case ours(l.Chain) && l.IsRule:
			f.rules++
		case ours(l.Chain):
			f.chains = append(f.chains, xtables.ChainID{Table: table, Name: l.Chain})
		case !ours(xtables.Target(l.Rule)):
		case builtin(l.Chain):
			f.jumps[l.Chain] = append(f.jumps[l.Chain], l.Rule)
		default:
			f.foreign++
		}
	})
}

// ownJump says that a rule of a built-in chain is this backend's.
func ownJump(text string) bool {
	_, rest, ok := strings.Cut(text, "--comment ")
	if !ok || !ours(xtables.Target(text)) {
		return false
	}
	end := " "
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		rest, end = quoted, `"`
	}
	text, _, _ = strings.Cut(rest, end)
	return strings.Contains(text, owner)
}
