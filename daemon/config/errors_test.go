package config

import (
	"strings"
	"testing"
)

// each case is a file's text after "version = 1" in line 1, and the whole error of it.
func TestFaultsNameFileLineKeyAndWhatIsAllowed(t *testing.T) {
	const withSource = "source.file.paths=['m']\n"
	for name, c := range map[string]struct{ text, want string }{
		"misspelt key":      {withSource + "[proxy]\nmasqurade_all = true", "/e.toml:4: proxy.masqurade_all: unknown key; the nearest known one is proxy.masquerade_all"},
		"wrong section":     {withSource + "[nftables]\nmasquerade_bit = 3", "/e.toml:4: nftables.masquerade_bit: unknown key; the nearest known one is proxy.masquerade_bit"},
		"misspelt section":  {withSource + "[prxy]\n", "/e.toml:3: prxy: unknown key; the nearest known one is"},
		"misspelt version":  {withSource + "versio = 1", "/e.toml:3: versio: unknown key; the nearest known one is version"},
		"key of upper case": {withSource + "[proxy]\nBackend = 'nftables'", "/e.toml:4: proxy.Backend: unknown key; the nearest known one is proxy.backend"},
		"array of tables":   {withSource + "[[proxy]]\nbackend = 'nftables'", "/e.toml:3: proxy: must be a table, [proxy], not an array of tables"},
		"value for section": {withSource + "proxy = 'nftables'", "/e.toml:3: proxy: must be a table, [proxy], not a string"},
		"table for key":     {withSource + "[proxy.backend]", "/e.toml:3: proxy.backend: must be a string, not a table"},
		"type of boolean":   {withSource + "\n\n[proxy]\nmasquerade_all = 'yes'", "/e.toml:6: proxy.masquerade_all: must be true or false, not a string"},
		"type of integer":   {withSource + "[proxy]\nmasquerade_bit = 1.5", "/e.toml:4: proxy.masquerade_bit: must be an integer, not a float"},
		"type of duration":  {withSource + "[checks.tcp]\ninterval = 30", `/e.toml:4: checks.tcp.interval: must be a string with a unit, as in "30s" or "1h30m", not an integer`},
		"type of element":   {withSource + "[node]\naddresses = ['192.0.2.1', 7]", "/e.toml:4: node.addresses: must be an array of strings, but element 2 is an integer"},
		"type of list":      {withSource + "[node]\naddresses = '192.0.2.1'", "/e.toml:4: node.addresses: must be an array of strings, not a string"},
		"range of integer":  {withSource + "[proxy]\nmasquerade_bit = 40", "/e.toml:4: proxy.masquerade_bit: 40 is out of range (0 to 31)"},
		"range of duration": {withSource + "[checks.tcp]\nsources = ['file']\ninterval = '1ms'", "/e.toml:5: checks.tcp.interval: 1ms is out of range (200ms to 1h)"},
		"no unit":           {withSource + "[checks.tcp]\ninterval = '30'", `/e.toml:4: checks.tcp.interval: "30" is not a duration, as in "30s" or "1h30m"`},
		"part of a second":  {withSource + "[conntrack]\nudp_timeout = '1500ms'", "/e.toml:4: conntrack.udp_timeout: 1.5s is not a whole number of seconds"},
		"not one of":        {withSource + "[node]\nlocal_policy = 'reject'", `/e.toml:4: node.local_policy: "reject" is not allowed ("drop" or "cluster")`},
		"log level":         {withSource + "[log]\nlevel = 'loud'", `/e.toml:4: log.level: "loud" is not allowed ("debug", "info", "warn" or "error")`},
		"address":           {withSource + "[node]\naddresses = ['::ffff:192.0.2.1']", `/e.toml:4: node.addresses: "::ffff:192.0.2.1" is an IPv4 address in IPv6 form; write 192.0.2.1`},
		"loopback address":  {withSource + "[node]\naddresses = ['127.0.0.1']", `/e.toml:4: node.addresses: "127.0.0.1" is not an address that a host can have in a cluster`},
		"two of a family":   {withSource + "[node]\naddresses = ['192.0.2.1','192.0.2.2']", "/e.toml:4: node.addresses: has more than one IPv4 address"},
		"range with host":   {withSource + "[proxy]\nservice_cidrs = ['10.96.0.1/12']", `/e.toml:4: proxy.service_cidrs: "10.96.0.1/12" has bits beyond its prefix length; did you mean 10.96.0.0/12?`},
		"twice":             {withSource + "[proxy]\nservice_cidrs = ['10.0.0.0/8', '10.0.0.0/8']", `/e.toml:4: proxy.service_cidrs: "10.0.0.0/8" stands there twice`},
		"node port address": {withSource + "[proxy]\nnodeport_addresses = ['any']", `/e.toml:4: proxy.nodeport_addresses: "any" is not a range, as in "10.0.0.0/8"; or use "primary", "localhost" or "all"`},
		"external IP":       {withSource + "[proxy]\nallow_external_ips = ['all']", `/e.toml:4: proxy.allow_external_ips: "all" is not a range, as in "10.0.0.0/8"; or use "host"`},
		"port range":        {withSource + "[proxy]\nnodeport_range = '32767-30000'", `/e.toml:4: proxy.nodeport_range: "32767-30000" is not a range of ports, as in "30000-32767"`},
		"port 0":            {withSource + "[proxy]\nnodeport_range = '0-9'", `/e.toml:4: proxy.nodeport_range: "0-9" is not a range of ports`},
		"one port":          {withSource + "[proxy]\nnodeport_range = '30000'", `/e.toml:4: proxy.nodeport_range: "30000" is not a range of ports`},
		"denied endpoint":   {withSource + "[proxy]\ndeny_endpoints = ['all']", `/e.toml:4: proxy.deny_endpoints: "all" is not a range, as in "10.0.0.0/8"; or use "host"`},
		"backend":           {withSource + "[proxy]\nbackend = 'x'", `/e.toml:4: proxy.backend: "x" is not allowed ("nftables", "iptables" or "other")`},
		"family":            {withSource + "[proxy]\nip_families = ['ipv4']", `/e.toml:4: proxy.ip_families: "ipv4" is not an address family ("IPv4" or "IPv6")`},
		"interface":         {withSource + "[proxy]\nbridge_interface = 'a b'", `/e.toml:4: proxy.bridge_interface: interface "a b" is invalid`},
		"long interface":    {withSource + "[proxy]\nbridge_interface = 'a23456789012345b'", `/e.toml:4: proxy.bridge_interface: interface "a23456789012345b" is invalid`},
		"long prefix":       {withSource + "[proxy]\ninterface_name_prefix = 'a23456789012345'", `/e.toml:4: proxy.interface_name_prefix: interface "a23456789012345*" is invalid`},
		"prefix as bridge":  {withSource + "[proxy]\nbridge_interface = 'veth*'", `/e.toml:4: proxy.bridge_interface: "veth*" stands for several interfaces: use proxy.interface_name_prefix`},
		"prefix with a *":   {withSource + "[proxy]\ninterface_name_prefix = 'veth*'", `/e.toml:4: proxy.interface_name_prefix: interface "veth**" is invalid`},
		"listen address":    {withSource + "[health]\naddress = 'localhost:80'", `/e.toml:4: health.address: "localhost:80": "localhost" is not an address`},
		"listen port":       {withSource + "[health]\naddress = ':0'", `/e.toml:4: health.address: ":0": port "0" is out of range (1 to 65535)`},
		"empty path":        {withSource + "[control]\nsocket = ''", "/e.toml:4: control.socket: must not be empty"},
		"empty path in it":  {"[source.file]\npaths = ['']", "/e.toml:3: source.file.paths: must not be empty"},
		"label selector":    {"[source.kube]\nkubeconfig = '/k'\nlabel_selector = 'a in'", `/e.toml:4: source.kube.label_selector: "a in" is not a label selector`},
		"namespace":         {"[source.kube]\nkubeconfig = '/k'\nnamespaces = ['A']", `/e.toml:4: source.kube.namespaces: "A" is not a namespace`},
		"no source":         {"", "/e.toml: no source of Services: set source.kube.kubeconfig, source.file.paths, or both"},
		"kube key alone":    {withSource + "[source.kube]\nnamespaces = ['a']", "/e.toml:4: source.kube.namespaces: is set, but source.kube.kubeconfig is not"},
		"mode needs key":    {withSource + "[proxy]\nlocal_detection = 'bridge_interface'", `/e.toml: proxy.bridge_interface: must be set, as proxy.local_detection is "bridge_interface"`},
		"key needs mode":    {withSource + "[proxy]\nbridge_interface = 'cni0'", `/e.toml:4: proxy.bridge_interface: is set, but proxy.local_detection is "none", not "bridge_interface"`},
		"one port twice":    {withSource + "[metrics]\naddress = '127.0.0.1:10256'", `/e.toml:4: metrics.address: "127.0.0.1:10256" and health.address, ":10256", have the same port`},
		"one port, IPv6":    {withSource + "[health]\naddress = '192.0.2.1:10249'\n[metrics]\naddress = '[::]:10249'", `/e.toml:6: metrics.address: "[::]:10249" and health.address, "192.0.2.1:10249", have the same port`},
		"one address twice": {withSource + "[metrics]\naddress = ':10256'", `/e.toml:4: metrics.address: ":10256" is health.address too`},
		"key for nothing":   {withSource + "[metrics]\naddress = ''\npprof = true", "/e.toml:5: metrics.pprof: is set, but metrics.address is not"},
		"checked source":    {withSource + "[checks]\ntcp = { sources = ['api'] }", `/e.toml:4: checks.tcp.sources: "api" is not a source whose endpoints can be checked ("file" or "kube")`},
		"checks of no file": {"[source.kube]\nkubeconfig = '/k'\n[checks.tcp]\nsources = ['kube', 'file']", `/e.toml:5: checks.tcp.sources: has "file", but source.file.paths is not set`},
		"checks of no API":  {withSource + "[checks.tcp]\nsources = ['kube']", `/e.toml:4: checks.tcp.sources: has "kube", but source.kube.kubeconfig is not set`},
		"checks of nothing": {withSource + "[checks]\ntcp = { interval = '2s' }", "/e.toml:4: checks.tcp.interval: is set, but checks.tcp.sources is not"},
		"failures alone":    {withSource + "[checks.tcp]\nfailures = 3", "/e.toml:4: checks.tcp.failures: is set, but checks.tcp.sources is not"},
		"no failure":        {withSource + "[checks.tcp]\nsources = ['file']\nfailures = 0", "/e.toml:5: checks.tcp.failures: 0 is out of range (1 to 100)"},
		"syntax":            {withSource + "[proxy", "/e.toml:3: "},
		"same key twice":    {withSource + "[proxy]\nbackend = 'nftables'\nbackend = 'nftables'", "/e.toml:5: "},
		"new version":       {"version = 2", "/e.toml:2: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load([]file{{"/e.toml", []byte("version = 1\n" + c.text)}}, "host", choices)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error:\n%v\nwant it to begin with:\n%s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one fault:\n%v", err)
			}
		})
	}
}

func TestTwoServersMayHaveOnePortAtTwoAddresses(t *testing.T) {
	const text = "version = 1\nsource.file.paths=['m']\nhealth.address='192.0.2.1:10249'"
	if _, err := load([]file{{"/e.toml", []byte(text)}}, "host", choices); err != nil {
		t.Error(err)
	}
}

func TestVersion(t *testing.T) {
	const rest = "\nsource.file.paths=['m']"
	for text, want := range map[string]string{
		"":              "/e.toml: version: is missing: the file must say version = 1",
		"version = 2":   "/e.toml:1: version: must be 1, the only version that this build reads",
		"version = '1'": "/e.toml:1: version: must be 1, the only version that this build reads",
	} {
		if _, err := load([]file{{"/e.toml", []byte(text + rest)}}, "host", choices); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	_, err := load([]file{
		{"/e.toml", []byte("version = 1\n[proxy]\nbackend = 'x'\nmasquerade_bit = -1\n[nope]\na = 1\nb = 2")},
		{"/conf.d/a.toml", []byte("[proxy\n")},
		{"/conf.d/b.toml", []byte("version = 3\n[log]\nlevel = 1")},
	}, "host", choices)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"/e.toml:3: proxy.backend: ", "/e.toml:4: proxy.masquerade_bit: ", "/e.toml:6: nope.a: ", "/e.toml:7: nope.b: ",
		"/conf.d/a.toml:2: ", "/conf.d/b.toml:1: version: ", "/conf.d/b.toml:3: log.level: ",
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d faults, want %d:\n%v", len(lines), len(want), err)
	}
	for i, w := range want {
		if !strings.HasPrefix(lines[i], w) {
			t.Errorf("fault %d is %q, want %q", i, lines[i], w)
		}
	}
}

func TestAHostNameThatIsNoNodeNameMustBeReplaced(t *testing.T) {
	const text = "version = 1\nsource.file.paths=['m']\n"
	if _, err := load([]file{{"/e.toml", []byte(text)}}, "my_host", choices); err == nil || !strings.HasPrefix(err.Error(), "/e.toml: node.name: must be set") {
		t.Errorf("error %v", err)
	}
	c, err := load([]file{{"/e.toml", []byte(text + "node.name='edge'")}}, "my_host", choices)
	if err != nil || c.Node.Name != "edge" {
		t.Errorf("node.name does not help: %v", err)
	}
}
