package kubeproxy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/config/kubeproxy"
)

const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// convert gives the lines that are not the head, and the notes, and wants the configuration to load.
func convert(t *testing.T, text string) (toml string, notes []string) {
	t.Helper()
	toml, notes, err := kubeproxy.Convert([]byte(text), daemon.Choices())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "edgeway.toml")
	if err := os.WriteFile(path, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path, daemon.Choices()); err != nil {
		t.Errorf("the configuration does not load: %v\n%s", err, toml)
	}
	_, toml, _ = strings.Cut(toml, "version = 1\n")
	return toml, notes
}

// settings are what the notes are about.
func settings(notes []string) (out []string) {
	for _, n := range notes {
		setting, _, _ := strings.Cut(n, ": ")
		out = append(out, setting)
	}
	return out
}

func TestTheConfigurationOfKubeadm(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	toml, notes := convert(t, string(text))
	const want = `
[source.kube]
kubeconfig = "/etc/edgeway/kubeconfig"

[proxy]
local_detection = "cluster_cidr"
cluster_cidrs = ["10.244.0.0/16"]
`
	if diff := cmp.Diff(want, toml); diff != "" {
		t.Errorf("edgeway.toml (-want +got):\n%s", diff)
	}
	// Where kubeadm sets nothing, each default that differs is told, and nothing else.
	if diff := cmp.Diff([]string{
		"clientConnection.kubeconfig", "mode", "iptables.minSyncPeriod", "detectLocalMode", "nodePortAddresses", "iptables.localhostNodePorts",
		"conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout", "oomScoreAdj",
	}, settings(notes)); diff != "" {
		t.Errorf("notes (-want +got):\n%s\n%s", diff, strings.Join(notes, "\n"))
	}
}

func TestEachSettingWithACounterpart(t *testing.T) {
	t.Parallel()
	toml, notes := convert(t, head+`
mode: iptables
clientConnection: {kubeconfig: /etc/kubernetes/edge.conf, qps: 5, burst: 10, contentType: application/vnd.kubernetes.protobuf}
hostnameOverride: Edge-1
bindAddress: 192.0.2.7
healthzBindAddress: 0.0.0.0
metricsBindAddress: "[::1]:9000"
enableProfiling: true
iptables: {masqueradeAll: true, masqueradeBit: 12, localhostNodePorts: true, minSyncPeriod: 2s, syncPeriod: 30s}
detectLocalMode: ClusterCIDR
clusterCIDR: 10.244.0.0/16, fd00:244::/56
nodePortAddresses: [primary, 192.0.2.7/24]
oomScoreAdj: -250
conntrack: {maxPerCore: 0, min: 1, tcpEstablishedTimeout: 2h, tcpCloseWaitTimeout: 60s, tcpBeLiberal: true, udpTimeout: 40s, udpStreamTimeout: 1500ms}
configSyncPeriod: 15m0s
featureGates: {AllowServiceExternalIPs: false}
logging: {format: json, verbosity: 5, flushFrequency: 5s}
`)
	const want = `
[node]
name = "edge-1"
addresses = ["192.0.2.7"]

[source.kube]
kubeconfig = "/etc/kubernetes/edge.conf"

[proxy]
backend = "iptables"
local_detection = "cluster_cidr"
cluster_cidrs = ["10.244.0.0/16", "fd00:244::/56"]
masquerade_all = true
masquerade_bit = 12
nodeport_addresses = ["primary", "localhost", "192.0.2.0/24"]
allow_external_ips = []
min_sync_period = "2s"

[conntrack]
max_per_core = 0
min = 1
tcp_established_timeout = "2h"
tcp_close_wait_timeout = "1m"
udp_timeout = "40s"
udp_stream_timeout = "2s"
tcp_be_liberal = true

[metrics]
address = "[::1]:9000"
pprof = true

[log]
level = "debug"
format = "json"
`
	if diff := cmp.Diff(want, toml); diff != "" {
		t.Errorf("edgeway.toml (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"detectLocalMode", "conntrack.udpStreamTimeout", "logging.verbosity", "oomScoreAdj"}, settings(notes)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct{ backend, masquerade, note string }{
		"":            {"nftables", "", "mode: kube-proxy's default is iptables"},
		"iptables":    {"iptables", "masquerade_bit = 3", "nftables.masqueradeBit: left out"},
		"nftables":    {"nftables", "masquerade_bit = 4", "iptables.masqueradeBit: left out"},
		"ipvs":        {"ipvs", "masquerade_bit = 3", "nftables.masqueradeBit: left out"},
		"kernelspace": {"nftables", "masquerade_bit = 3", `mode: there is no backend "kernelspace"`},
	} {
		toml, notes := convert(t, head+"mode: \""+mode+"\"\niptables: {masqueradeBit: 3}\nnftables: {masqueradeBit: 4}\n")
		explicit := strings.Contains(toml, `backend = "`+want.backend+`"`)
		if explicit != (want.backend != config.Default().Proxy.Backend) || !strings.Contains(toml, want.masquerade) ||
			!slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, want.note) }) {
			t.Errorf("mode %q:\n%s\n%s", mode, toml, strings.Join(notes, "\n"))
		}
	}
}

// Whatever a field is set to, either the configuration says so or a note.
func TestNoSettingIsLostInSilence(t *testing.T) {
	t.Parallel()
	usual, usualNotes := convert(t, head)
	for path, value := range kubeproxy.Samples() {
		toml, notes := convert(t, head+nest(path, value))
		told := slices.ContainsFunc(notes, func(n string) bool {
			return strings.HasPrefix(n, path) && !slices.Contains(usualNotes, n)
		})
		if toml == usual && !told {
			t.Errorf("%s: %s is lost", path, value)
		}
	}
}

// nest gives "a: {b: value}" for "a.b".
func nest(path, value string) string {
	if outer, inner, ok := strings.Cut(path, "."); ok {
		return outer + ": {" + nest(inner, value) + "}"
	}
	return path + ": " + value
}

func TestWhatIsNoConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: [":      "does not parse",
		"kind: Pod": `the kind is "Pod": it must be KubeProxyConfiguration, or a ConfigMap with config.conf`,
		"apiVersion: v1\nkind: ConfigMap\ndata: {other: x}":                    `the kind is "ConfigMap"`,
		"kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1": "it must be KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1",
		head + "iptables: {masqueradeBit: many}":                               "masqueradeBit",
		head + "mode: iptables\nmode: nftables":                                "already set",
		"apiVersion: v1\nkind: ConfigMap\ndata: {config.conf: 'kind: Node'}\n": `it is "Node"`,
	} {
		if _, _, err := kubeproxy.Convert([]byte(text), daemon.Choices()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want it to have %q", text, err, want)
		}
	}
	_, notes := convert(t, head+"mod: iptables\niptables: {syncPeriods: 1s}\n")
	for _, want := range []string{"mod: unknown field", "iptables.syncPeriods: unknown field"} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("no note %q in %q", want, notes)
		}
	}
}

// The manual's table has every field: by itself, or by a pattern as in "ipvs.*", "*.masqueradeAll" and, behind another one of
// the same section, ".burst".
func TestTheManualHasEverySetting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../packaging/man/edgeway.toml.5")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), ".Sh SETTINGS OF KUBE-PROXY\n")
	table, _, ok2 := strings.Cut(table, "\n.Ed\n")
	if !ok || !ok2 {
		t.Fatal("no table in the manual")
	}
	words := regexp.MustCompile(`[\w.*]+`).FindAllString(table, -1)
	for path := range kubeproxy.Samples() {
		section, field, ok := strings.Cut(path, ".")
		known := []string{path, section}
		if ok {
			known = []string{path, section + ".*", "*." + field, "." + field}
		}
		if !slices.ContainsFunc(known, func(k string) bool { return slices.Contains(words, k) }) {
			t.Errorf("the manual does not have %s", path)
		}
	}
}
