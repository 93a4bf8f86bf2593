package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

var choices = []proxiers.Component{
	{Name: "nftables", Doc: "tables of its own"},
	{Name: "iptables", Doc: "rules of all"},
	{Name: "other", Doc: "something else"},
}

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDropInsOverrideInLexicalOrder(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "edgeway.toml")
	write(t, main,
		"version = 1\n[source.kube]\nkubeconfig = \"kc\"\n[proxy]\nmasquerade_bit = 1\nmasquerade_all = true\n")
	write(t, filepath.Join(dir, "conf.d", "20-b.toml"),
		"[proxy]\nmasquerade_bit = 3\n[source.file]\npaths = [\"m\", \"/abs\"]\n")
	write(t, filepath.Join(dir, "conf.d", "10-a.toml"), "version = 1\n[proxy]\nmasquerade_bit = 2\n")
	write(t, filepath.Join(dir, "conf.d", "30-not-toml.bak"), "nonsense")
	write(t, filepath.Join(dir, "conf.d", ".30-hidden.toml"), "nonsense")

	got, err := Load(main, choices)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Node.Name = strings.ToLower(host)
	want.Source.Kube.Kubeconfig = filepath.Join(dir, "kc")
	want.Source.File.Paths = []string{filepath.Join(dir, "conf.d", "m"), "/abs"}
	want.Proxy.MasqueradeBit = 3
	want.Proxy.MasqueradeAll = true
	if diff := cmp.Diff(want, got, compareAddrs, comparePrefixes); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestEveryKeySetsItsField(t *testing.T) {
	text := `version = 1
node = { name = "edge-1", addresses = ["192.0.2.1", "2001:db8::1"], zone = "z1", local_policy = "cluster" }
source.lastknown = { directory = "/state" }
source.kube.kubeconfig = "/kc"
source.kube.namespaces = ["a", "b"]
source.kube.label_selector = "edge in (yes, all)"
source.kube.allow_exec_plugins = true
[source.file]
paths = ["/m"]
[proxy]
backend = "nftables"
fallback = "other"
ip_families = ["IPv6"]
local_detection = "cluster_cidr"
cluster_cidrs = ["10.244.0.0/16"]
masquerade_all = true
masquerade_bit = 0
nodeport_addresses = ["localhost", "192.0.2.0/24", "primary", "all"]
service_cidrs = ["10.96.0.0/12"]
nodeport_range = "30000-32767"
allow_external_ips = ["198.51.100.0/24", "host"]
allow_load_balancer_ips = ["host", "203.0.113.0/24"]
deny_endpoints = ["192.168.0.0/16"]
[routes]
services = "always"
[conntrack]
max_per_core = 1
[checks]
tcp = { sources = ["kube", "file"], interval = "2s", failures = 3 }
[health]
address = "[::1]:1"
[metrics]
address = ":9"
web_config = "/web.yml"
pprof = true
[log]
level = "debug"
format = "json"
[control]
socket = "/s"
`
	got, err := load([]file{{"/etc/edgeway.toml", []byte(text)}}, "host", choices)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Node: Node{Name: "edge-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, Zone: "z1", LocalPolicy: LocalCluster},
		Source: Source{
			Kube:      Kube{Kubeconfig: "/kc", Namespaces: []string{"a", "b"}, LabelSelector: "edge in (yes, all)", AllowExecPlugins: true},
			File:      File{Paths: []string{"/m"}},
			LastKnown: LastKnown{Directory: "/state"},
		},
		Proxy: Proxy{
			Backend: "nftables", Fallback: "other", IPFamilies: []plan.Family{plan.IPv6},
			LocalDetection: DetectClusterCIDR, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
			MasqueradeAll:     true,
			NodePortAddresses: NodePortAddresses{Primary: true, Localhost: true, All: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			ServiceCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
			AllowExternalIPs:  HostRanges{Host: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
			NodePortRange:     PortRange{30000, 32767}, AllowLoadBalancers: HostRanges{Host: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
			DenyEndpoints: HostRanges{Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}},
		},
		Routes:    Routes{Services: RoutesAlways},
		Conntrack: Conntrack{MaxPerCore: 1},
		Checks: Checks{TCP: TCPChecks{
			Sources: []CheckedSource{CheckedKube, CheckedFile}, Interval: 2 * time.Second, Failures: 3,
		}},
		Health:  Health{Address: "[::1]:1"},
		Metrics: Metrics{Address: ":9", WebConfig: "/web.yml", Pprof: true},
		Log:     Log{Level: -4, Format: "json"},
		Control: Control{Socket: "/s"},
	}
	if diff := cmp.Diff(want, got, compareAddrs, comparePrefixes); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
}

func TestLastFileReplacesList(t *testing.T) {
	const text = "version = 1\nsource.file.paths = ['m']\nproxy.allow_external_ips = "
	for list, want := range map[string]HostRanges{
		"[]":                     {},
		"['host']":               {Host: true},
		"['::/0', 'host']":       {Host: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("::/0")}},
		"['::/0', '10.0.0.0/8']": {Prefixes: []netip.Prefix{netip.MustParsePrefix("::/0"), netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		for _, before := range []string{"['host']", "['192.0.2.0/24']"} {
			got, err := load([]file{
				{"/e.toml", []byte(text + before)},
				{"/conf.d/a.toml", []byte("proxy.allow_external_ips = " + list)},
			}, "host", choices)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Proxy.AllowExternalIPs, comparePrefixes); diff != "" {
				t.Errorf("%s after %s (-want +got):\n%s", list, before, diff)
			}
		}
	}
}

func TestUnreadableFilesAreReported(t *testing.T) {
	dir := t.TempDir()
	main, dropIn := filepath.Join(dir, "none.toml"), filepath.Join(dir, "conf.d", "gone.toml")
	write(t, filepath.Join(dir, "conf.d", "x"), "")
	if err := os.Symlink("/nonexistent", dropIn); err != nil {
		t.Fatal(err)
	}
	_, err := Load(main, choices)
	const missing = ": no such file or directory: create the file or directory, or correct the path"
	want := main + missing + "\n" + dropIn + missing
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
	if _, ok := errors.AsType[*Error](err); !ok {
		t.Errorf("%T holds no *Error", err)
	}
}
