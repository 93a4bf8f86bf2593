package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/program"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// probeChain exists only in a temporary network namespace, or in input that iptables-restore validates but does not
// apply.
const probeChain = "EDGEWAY-PROBE"

// feature is a required iptables extension, with a rule that uses it.
type feature struct{ name, table, rule string }

// features returns all required features except the "recent" match, which only Services with session affinity need.
func features(f plan.Family) []feature {
	to, reject := "192.0.2.1:80", "icmp-port-unreachable"
	if f == plan.IPv6 {
		to, reject = "[2001:db8::1]:80", "icmp6-port-unreachable"
	}
	return []feature{
		{"match comment", xtables.NAT, `-m comment --comment "probe"`},
		{"match tcp", xtables.NAT, "-p tcp -m tcp --dport 1"},
		{"match udp", xtables.NAT, "-p udp -m udp --dport 1"},
		{"match sctp", xtables.NAT, "-p sctp -m sctp --dport 1"},
		{"match addrtype", xtables.NAT, "-m addrtype --dst-type LOCAL"},
		{"match mark", xtables.NAT, "-m mark --mark 0x1/0x1"},
		{"match statistic", xtables.NAT, "-m statistic --mode random --probability 0.5"},
		{"match conntrack", xtables.Filter, "-m conntrack --ctstate INVALID"},
		{"target MARK", xtables.NAT, "-j MARK --set-xmark 0x1/0x1"},
		{"target DNAT", xtables.NAT, "-p tcp -j DNAT --to-destination " + to},
		{"target MASQUERADE", xtables.NAT, "-j MASQUERADE --random-fully"},
		{"target REJECT", xtables.Filter, "-j REJECT --reject-with " + reject},
	}
}

// probe tests whether the programs and the kernel accept every kind of rule.
func probe(ctx context.Context, v xtables.Variant) error {
	for _, f := range proxiers.KernelFamilies() {
		t, err := xtables.Open(ctx, v, f)
		if err == nil {
			err = probeFamily(ctx, t)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

func probeFamily(ctx context.Context, t *xtables.Tools) error {
	all := features(t.Family)
	err := tryRules(ctx, t, all...)
	switch {
	case err == nil || program.Transient(err) || isInconclusive(err):
		return err
	case !errors.Is(err, proxiers.ErrRefused):
		return fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
	}
	var missing []string
	for _, one := range all {
		if tryRules(ctx, t, one) != nil {
			missing = append(missing, one.name)
		}
	}
	return fmt.Errorf("%w: iptables-%s or the kernel lacks %s: %w", proxiers.ErrUnsupported, t.Variant,
		strings.Join(missing, ", "), err)
}

// isInconclusive reports whether the cause of the error may be a missing privilege or a busy lock, not a missing
// feature.
func isInconclusive(err error) bool {
	text := err.Error()
	return strings.Contains(text, "ermission denied") || strings.Contains(text, "not permitted") ||
		strings.Contains(text, "xtables lock")
}

func tryRules(ctx context.Context, t *xtables.Tools, list ...feature) error {
	in := xtables.NewInput()
	rules := map[string][]string{}
	for _, f := range list {
		rules[f.table] = append(rules[f.table], f.rule)
	}
	for table := range rules {
		in.Write(chain(table, probeChain, rules[table]...))
	}
	return t.Try(ctx, in.Bytes())
}
