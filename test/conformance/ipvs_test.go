package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/ipvs"
)

func TestIpvs(t *testing.T) { Run(t, ipvsBackend()) }

func ipvsBackend() Backend {
	return Backend{
		Component:      ipvs.Component(),
		CountsLoopback: true,
		Dump:           dumpIpvs,
		Sequences:      15, // as many as for the nftables backend
		VMOnlyReason:   "it needs a kernel with IPVS, whose module is loaded",
		Damages: map[string]func(context.Context) error{
			"all virtual servers go":         command("ipvsadm", "-C"),
			"a virtual server is deleted":    changeServer("-D SERVER"),
			"a scheduler is changed":         changeServer("-E SERVER -s sed"),
			"a virtual server persists":      changeServer("-E SERVER -p 600"),
			"an endpoint is deleted":         changeServer("-d SERVER -r ENDPOINT"),
			"an endpoint gets no more":       changeServer("-e SERVER -r ENDPOINT -m -w 0"),
			"a foreign endpoint is added":    changeServer("-a SERVER -r ANOTHER -m -w 1"),
			"an endpoint has an upper bound": changeServer("-e SERVER -r ENDPOINT -m -w 1 -x 10"),
			"a local route is deleted":       deleteARoute,
			"the rule is deleted":            command("ip", "-6", "rule", "delete", "pref", "237"),
			"all routes are flushed":         command("ip", "route", "flush", "table", "237"),
			"all rules are flushed":          nftCommand("flush ruleset"),
			"a rule is deleted":              nftCommand("flush chain ip6 edgeway-ipvs untaken-input"),
			"an element is added":            nftCommand("add element ip edgeway-ipvs cluster-ips { 203.0.113.99 }"),
		},
	}
}

func command(name string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := output(ctx, name, args...)
		return err
	}
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return string(out), nil
}

// changeServer returns a function that runs ipvsadm on the first virtual server that ipvsadm lists with an endpoint.
func changeServer(args string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := output(ctx, "ipvsadm", "--save", "--numeric")
		if err != nil {
			return err
		}
		for line := range strings.Lines(list) {
			words := strings.Fields(line) // the fields are: -a -t SERVER -r ENDPOINT -m -w 1
			if len(words) < 5 || words[0] != "-a" {
				continue
			}
			endpoint, err := netip.ParseAddrPort(words[4])
			if err != nil {
				return err
			}
			another := netip.AddrPortFrom(endpoint.Addr(), endpoint.Port()+1)
			args := strings.NewReplacer("SERVER", words[1]+" "+words[2], "ENDPOINT", words[4], "ANOTHER",
				another.String()).Replace(args)
			return command("ipvsadm", strings.Fields(args)...)(ctx)
		}
		return fmt.Errorf("no endpoint in %q", list)
	}
}

func deleteARoute(ctx context.Context) error {
	list, err := output(ctx, "ip", "route", "show", "table", "237")
	if err != nil {
		return err
	}
	words := strings.Fields(list)
	if len(words) < 2 || words[0] != "local" {
		return fmt.Errorf("no local route in %q", list)
	}
	return command("ip", "route", "delete", "table", "237", "local", words[1])(ctx)
}

// dumpIpvs returns the nft table, the virtual servers without their connection counts, the backend's routing table and
// its routing rules. dumpIpvs does not read /proc/net/ip_vs, because on Linux 6.1, this file omits some virtual servers
// if another network namespace also has virtual servers.
func dumpIpvs(ctx context.Context) (string, error) {
	table, err := dumpTable(ctx, "edgeway-ipvs")
	if err != nil {
		return "", err
	}
	servers, err := output(ctx, "ipvsadm", "--save", "--numeric")
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(servers), "\n")
	for _, family := range []string{"-4", "-6"} {
		for _, what := range [][]string{{"route", "show", "table", "237"}, {"rule", "show", "table", "237"}} {
			list, err := output(ctx, "ip", append([]string{family}, what...)...)
			if err != nil && !strings.Contains(err.Error(), "FIB table does not exist") {
				return "", err
			}
			lines = append(lines, strings.Split(strings.TrimSpace(list), "\n")...)
		}
	}
	slices.Sort(lines)
	if table == "" {
		return strings.TrimSpace(strings.Join(lines, "\n")), nil
	}
	return table + strings.Join(lines, "\n"), nil
}
