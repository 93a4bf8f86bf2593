package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// probeChain is made in a network namespace that ends with the program, or only checked.
const probeChain = "EDGEWAY-PROBE"

// feature is an extension of iptables that every host needs, and a rule that uses it.
type feature struct{ name, table, rule string }

// features leaves out the match "recent": only Services with session affinity need it.
func features(f plan.Family) []feature {
	to, reject := "192.0.2.1:80", "icmp-port-unreachable"
	if f == plan.IPv6 {
		to, reject = "[2001:db8::1]:80", "icmp6-port-unreachable"
	}
	return []feature{
		{"match comment", tableNAT, `-m comment --comment "probe"`},
		{"match tcp", tableNAT, "-p tcp -m tcp --dport 1"},
		{"match udp", tableNAT, "-p udp -m udp --dport 1"},
		{"match sctp", tableNAT, "-p sctp -m sctp --dport 1"},
		{"match addrtype", tableNAT, "-m addrtype --dst-type LOCAL"},
		{"match mark", tableNAT, "-m mark --mark 0x1/0x1"},
		{"match statistic", tableNAT, "-m statistic --mode random --probability 0.5"},
		{"match conntrack", tableFilter, "-m conntrack --ctstate INVALID"},
		{"target MARK", tableNAT, "-j MARK --set-xmark 0x1/0x1"},
		{"target DNAT", tableNAT, "-p tcp -j DNAT --to-destination " + to},
		{"target MASQUERADE", tableNAT, "-j MASQUERADE --random-fully"},
		{"target REJECT", tableFilter, "-j REJECT --reject-with " + reject},
	}
}

// probe has the programs and the kernel take a rule of every kind.
func probe(ctx context.Context, v variant) error {
	for _, f := range hostFamilies() {
		t, err := openTools(v, f)
		if err != nil {
			return err
		}
		if err := t.probe(ctx); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

func (t *tools) probe(ctx context.Context) error {
	all := features(t.family)
	err := t.tryRules(ctx, all)
	switch {
	case err == nil || ctx.Err() != nil || unprivileged(err):
		return err
	case !errors.Is(err, proxiers.ErrRefused):
		return fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
	}
	var missing []string
	for _, one := range all {
		if t.tryRules(ctx, []feature{one}) != nil {
			missing = append(missing, one.name)
		}
	}
	return fmt.Errorf("%w: iptables-%s or the kernel lacks %s: %w", proxiers.ErrUnsupported, t.variant, strings.Join(missing, ", "), err)
}

// unprivileged says that the host may well have all that is needed, but not for this process, or not now.
func unprivileged(err error) bool {
	text := err.Error()
	return strings.Contains(text, "ermission denied") || strings.Contains(text, "not permitted") || strings.Contains(text, "xtables lock")
}

// tryRules runs the program in a network namespace of its own. Where that is forbidden the program only
// checks the rules (--test): then the kernel is not asked about each, and iptables-legacy registers the tables.
func (t *tools) tryRules(ctx context.Context, list []feature) error {
	in := newInput()
	for _, table := range tables {
		c := chain{table: table, name: probeChain}
		for _, f := range list {
			if f.table == table {
				c.rules = append(c.rules, f.rule)
			}
		}
		if len(c.rules) > 0 {
			in.write(c)
		}
	}
	err := t.try(ctx, in.bytes(), &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET})
	if errors.Is(err, unix.EPERM) {
		err = t.try(ctx, in.bytes(), nil, "--test")
	}
	return err
}

func (t *tools) try(ctx context.Context, input []byte, attr *syscall.SysProcAttr, args ...string) error {
	cmd := t.command(ctx, t.programs.restore, append(args, "--noflush")...)
	if t.lock != nil {
		cmd.Args = append(cmd.Args, t.lock.wait(ctx))
	}
	cmd.Stdin = bytes.NewReader(input)
	cmd.SysProcAttr = attr
	_, err := cmd.Output()
	if _, ran := errors.AsType[*exec.ExitError](err); err == nil || !ran {
		return err
	}
	return restoreError(ctx, cmd, err, input)
}
