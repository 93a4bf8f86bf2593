package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables"
)

func TestIptablesNft(t *testing.T) { Run(t, requireUsable(t, iptablesBackend("nft"))) }

func TestIptablesLegacy(t *testing.T) { Run(t, requireUsable(t, iptablesBackend("legacy"))) }

// requireUsable skips the test if the host lacks a feature that the backend needs. In continuous integration (CI=true),
// requireUsable fails the test instead.
func requireUsable(t testing.TB, b Backend) Backend {
	t.Helper()
	if err := b.Probe(t.Context()); errors.Is(err, proxiers.ErrUnsupported) && os.Getenv("CI") != "true" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return b
}

func iptablesBackend(variant string) Backend {
	name := "iptables-" + variant
	all := iptables.Components()
	i := slices.IndexFunc(all, func(c proxiers.Component) bool { return c.Name == name })
	ipt := iptablesVariant(variant)
	b := Backend{
		Component: all[i],
		Dump:      ipt.dump,
		// The expressions match chains that exist only if a dispatch tree has more than one level.
		Patterns: []*regexp.Regexp{
			regexp.MustCompile(`-t nat -N KUBE-SERVICES-[0-9a-f]{2}\n`),
			regexp.MustCompile(`-t nat -N KUBE-NODEPORTS-[0-9a-f]+\n`),
			regexp.MustCompile(`-t filter -N KUBE-SERVICES-[0-9a-f]\n`),
			regexp.MustCompile(`-t filter -N KUBE-EXTERNAL-SERVICES-[0-9a-f]\n`),
		},
		Damages: map[string]func(context.Context) error{
			"all rules of one table are flushed": ipt.run("iptables -t nat -F"),
			"all rules are flushed":              ipt.run("iptables -F", "iptables -t nat -F", "ip6tables -F", "ip6tables -t nat -F"),
			"all rules and chains go":            ipt.run("ip6tables -F", "ip6tables -t nat -F", "ip6tables -X", "ip6tables -t nat -X"),
			"a jump is deleted":                  ipt.deleteJump,
			"one of its chains is flushed":       ipt.run("iptables -t nat -F KUBE-POSTROUTING"),
			"a dispatch chain is flushed":        ipt.run("ip6tables -F KUBE-SERVICES"),
			"a chain of a Service is flushed":    ipt.onServiceChain("-F %s"),
			"a rule of a Service is deleted":     ipt.onServiceChain("-D %s 1"),
			"a rule is added to its chain":       ipt.run("iptables -t nat -I KUBE-SERVICES -p tcp --dport 9 -j ACCEPT"),
		},
	}
	if variant == "nft" {
		b.Damages["the ruleset of nftables is flushed"] = nftCommand("flush ruleset")
		b.Damages["one table of nftables is deleted"] = nftCommand("delete table ip6 nat")
	}
	return b
}

// iptablesVariant is "nft" or "legacy". The methods of iptablesVariant run the variant's programs to change and list
// rules, as another program might.
type iptablesVariant string

// command runs a command such as "iptables ARGUMENTS" or "ip6tables-save ARGUMENTS".
func (v iptablesVariant) command(ctx context.Context, command string) (string, error) {
	words := strings.Fields(command)
	family, what, isOther := strings.Cut(words[0], "-")
	program := family + "-" + string(v)
	if isOther {
		program += "-" + what
	}
	cmd := exec.CommandContext(ctx, program, words[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(words[1:], " "), err, &stderr)
	}
	return string(out), nil
}

func (v iptablesVariant) run(commands ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, c := range commands {
			if _, err := v.command(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// dump returns a sorted list of Edgeway's chains and the built-in chains, for both IPv4 and IPv6.
func (v iptablesVariant) dump(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{"nat", "filter"} {
			chains, err := v.chains(ctx, family, table)
			if err != nil {
				return "", err
			}
			for _, name := range slices.Sorted(maps.Keys(chains)) {
				fmt.Fprintf(&b, "%s -t %s -N %s\n", family, table, name)
				for _, rule := range chains[name] {
					fmt.Fprintf(&b, "%s -t %s -A %s %s\n", family, table, name, rule)
				}
			}
		}
	}
	return b.String(), nil
}

var savedChain = regexp.MustCompile(`^:(\S+) (\S+)`)

// chains returns the rules of each chain in an iptables table, without counters. The result omits other programs'
// chains, and the empty built-in chains that listing a table creates.
func (v iptablesVariant) chains(ctx context.Context, family, table string) (map[string][]string, error) {
	text, err := v.command(ctx, family+"-save -t "+table)
	if err != nil {
		return nil, err
	}
	chains := map[string][]string{}
	for _, line := range strings.Split(text, "\n") {
		if m := savedChain.FindStringSubmatch(line); m != nil && strings.HasPrefix(m[1], "KUBE-") {
			chains[m[1]] = nil
		}
		if rule, ok := strings.CutPrefix(line, "-A "); ok {
			name, rest, _ := strings.Cut(rule, " ")
			if _, ours := chains[name]; ours || name == strings.ToUpper(name) && !strings.Contains(name, "-") {
				chains[name] = append(chains[name], rest)
			}
		}
	}
	return chains, nil
}

func (v iptablesVariant) deleteJump(ctx context.Context) error {
	chains, err := v.chains(ctx, "iptables", "filter")
	if err != nil {
		return err
	}
	for i, rule := range chains["FORWARD"] {
		if strings.Contains(rule, "edgeway") {
			_, err := v.command(ctx, fmt.Sprintf("iptables -D FORWARD %d", i+1))
			return err
		}
	}
	return fmt.Errorf("no jump in %q", chains["FORWARD"])
}

func (v iptablesVariant) onServiceChain(command string) func(context.Context) error {
	return func(ctx context.Context) error {
		chains, err := v.chains(ctx, "ip6tables", "nat")
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(chains)) {
			if strings.HasPrefix(name, "KUBE-SVC-") && len(chains[name]) > 0 {
				_, err := v.command(ctx, "ip6tables -t nat "+fmt.Sprintf(command, name))
				return err
			}
		}
		return errors.New("no chain of a Service")
	}
}
