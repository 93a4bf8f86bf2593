package conformance

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/test/netlab"
)

// cleanupContext returns a context for cleanup functions, which run after t.Context is done.
func cleanupContext(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// hostState returns, as text, the parts of the host's state that a backend or a follower may change: packet-filtering
// rules, addresses, interfaces, routing tables and rules, traffic control, virtual servers, pinned BPF objects, and the
// sysctls that proxies set.
func (s *suite) hostState(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, command := range []string{
		"nft -s list ruleset", "ip -o address show", "ip rule show", "ip -6 rule show",
		"ip route show table all", "ip -6 route show table all", "tc qdisc show", "tc filter show dev eth0",
	} {
		words := strings.Fields(command)
		out, err := s.world.Node.Command(cleanupContext(t), words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		fmt.Fprintf(&b, "# %s\n%s", command, netlab.WithoutEmptyTables(string(out)))
	}
	for _, family := range []string{"ip", "ip6"} {
		s.writeLegacyRules(t, &b, family)
	}
	writeVirtualServers(t, &b)
	writePins(t, &b)
	for _, name := range []string{
		"ipv4/conf/all/route_localnet", "ipv4/conf/all/arp_ignore", "ipv4/conf/all/arp_announce",
		"ipv4/ip_forward", "ipv4/vs/conntrack", "netfilter/nf_conntrack_tcp_be_liberal",
	} {
		value, err := os.ReadFile("/proc/sys/net/" + name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s = %s", name, value)
	}
	return b.String()
}

// writeVirtualServers writes the IPVS virtual servers to b, but omits the header, which every kernel with IPVS prints.
func writeVirtualServers(t *testing.T, b *strings.Builder) {
	t.Helper()
	const heading = 3
	text, err := os.ReadFile("/proc/net/ip_vs")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if lines := strings.SplitAfter(string(text), "\n"); len(lines) > heading {
		fmt.Fprintf(b, "# virtual servers\n%s", strings.Join(lines[heading:], ""))
	}
}

func writePins(t *testing.T, b *strings.Builder) {
	t.Helper()
	err := filepath.WalkDir("/sys/fs/bpf", func(path string, _ fs.DirEntry, err error) error {
		fmt.Fprintln(b, path)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// writeLegacyRules writes the iptables-legacy rules to b, but omits empty built-in chains. writeLegacyRules reads only
// existing tables, because listing a missing table creates it in the kernel, and no program can remove it.
func (s *suite) writeLegacyRules(t *testing.T, b *strings.Builder, family string) {
	t.Helper()
	if names, err := os.ReadFile("/proc/net/" + family + "_tables_names"); err != nil || len(names) == 0 {
		return // the kernel has no iptables-legacy tables
	}
	program := family + "tables-legacy-save"
	out, err := s.world.Node.Command(cleanupContext(t), program).Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	table := ""
	for _, line := range strings.Split(string(out), "\n") {
		line, _, _ = strings.Cut(line, " [") // omit the counters
		switch {
		case strings.HasPrefix(line, "*"):
			table = line
		case strings.HasPrefix(line, "-A"), strings.HasPrefix(line, ":") && !strings.HasSuffix(line, " ACCEPT"):
			fmt.Fprintln(b, family, table, line)
		}
	}
}

func firstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(as), len(bs)) {
		var x, y string
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
		}
		if x != y {
			return fmt.Sprintf("line %d is\n\t%s\nand\n\t%s", i+1, x, y)
		}
	}
	return "none"
}
