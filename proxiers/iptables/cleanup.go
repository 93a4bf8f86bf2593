package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// cleanupVariant removes what any version of this backend left in both families of one variant.
func cleanupVariant(ctx context.Context, v variant, logger *slog.Logger) error {
	for _, f := range hostFamilies() {
		if err := cleanupFamily(ctx, v, f, logger); err != nil {
			return fmt.Errorf("clean up %s: %w", f, err)
		}
	}
	return nil
}

// cleanupFamily needs no program where there is no table.
func cleanupFamily(ctx context.Context, v variant, f plan.Family, logger *slog.Logger) error {
	names, err := tableNames(v, f)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
	}
	if err != nil || len(names) == 0 {
		return err
	}
	t, err := openTools(v, f)
	if err != nil {
		return err
	}
	return t.cleanup(ctx, logger)
}

// cleanup removes our rules from the built-in chains, and then the chains that they led to. Without such
// a rule chains are a kube-proxy's, unless they have been emptied ("iptables -F"): then nobody has a use for
// them. Those to which rules of others lead, too, have become a kube-proxy's.
func (t *tools) cleanup(ctx context.Context, logger *slog.Logger) error {
	found := map[string]*saved{}
	var own, foreign, rules, chains int
	for _, table := range tables {
		s, err := t.save(ctx, table)
		if err != nil {
			return err
		}
		found[table] = s
		own, foreign, rules, chains = own+s.ownJumps, foreign+s.foreignJumps, rules+s.rules, chains+len(s.ownChains())
	}
	stay := foreign > 0 || own == 0 && rules > 0
	if stay && chains > 0 {
		logger.Info("chains stay: they are not known to be this program's alone", "variant", string(t.variant),
			"family", t.family.String(), "chains", chains, "rules_of_others_that_use_them", foreign)
	}
	if own == 0 && (stay || chains == 0) {
		return nil
	}
	in := newInput()
	for table, s := range found {
		s.removeOwn(in, table, !stay)
	}
	if err := t.restore(ctx, in.bytes()); err != nil {
		return err
	}
	if t.variant == nft {
		return deleteEmptyTables(t.family)
	}
	return nil
}

// removeOwn deletes our rules in built-in chains, and all chains with names of ours if they are ours, too.
func (s *saved) removeOwn(in *input, table string, chains bool) {
	for chain, rules := range s.builtin {
		for _, r := range rules {
			if ownJump(r) {
				in.hook(table, "-D", chain, r)
			}
		}
	}
	if chains {
		for _, name := range s.ownChains() {
			in.remove(chainID{table, name})
		}
	}
}

// ownChains are the chains with names of ours.
func (s *saved) ownChains() []string {
	var names []string
	for _, name := range s.chains {
		if ours(name) {
			names = append(names, name)
		}
	}
	return names
}
