package config

import (
	"strings"
	"testing"
)

// Each case is the text of a configuration file after its first line, "version = 1". Each error must begin with the
// file, the line and the key, and, depending on the mistake, must mention the allowed values, the nearest key or the
// wrong value.
func TestErrorsNameFileLineKeyAndAllowedValues(t *testing.T) {
	const withSource = "source.file.paths=['m']\n"
	for name, c := range map[string]struct{ text, at, names string }{
		"misspelt key":      {withSource + "[proxy]\nmasqurade_all = true", "/e.toml:4: proxy.masqurade_all: ", "proxy.masquerade_all"},
		"wrong section":     {withSource + "[nftables]\nmasquerade_bit = 3", "/e.toml:4: nftables.masquerade_bit: ", "proxy.masquerade_bit"},
		"misspelt section":  {withSource + "[prxy]\n", "/e.toml:3: prxy: ", ""},
		"misspelt version":  {withSource + "versio = 1", "/e.toml:3: versio: ", "version"},
		"key of upper case": {withSource + "[proxy]\nBackend = 'nftables'", "/e.toml:4: proxy.Backend: ", "proxy.backend"},
		"array of tables":   {withSource + "[[proxy]]\nbackend = 'nftables'", "/e.toml:3: proxy: ", ""},
		"value for section": {withSource + "proxy = 'nftables'", "/e.toml:3: proxy: ", ""},
		"table for key":     {withSource + "[proxy.backend]", "/e.toml:3: proxy.backend: ", ""},
		"type of boolean":   {withSource + "\n\n[proxy]\nmasquerade_all = 'yes'", "/e.toml:6: proxy.masquerade_all: ", ""},
		"type of integer":   {withSource + "[proxy]\nmasquerade_bit = 1.5", "/e.toml:4: proxy.masquerade_bit: ", ""},
		"type of duration":  {withSource + "[checks.tcp]\ninterval = 30", "/e.toml:4: checks.tcp.interval: ", `"1h30m"`},
		"type of element":   {withSource + "[node]\naddresses = ['192.0.2.1', 7]", "/e.toml:4: node.addresses: ", ""},
		"type of list":      {withSource + "[node]\naddresses = '192.0.2.1'", "/e.toml:4: node.addresses: ", ""},
		"range of integer":  {withSource + "[proxy]\nmasquerade_bit = 40", "/e.toml:4: proxy.masquerade_bit: ", "0 to 31"},
		"range of duration": {withSource + "[checks.tcp]\nsources = ['file']\ninterval = '1ms'", "/e.toml:5: checks.tcp.interval: ", "200ms to 1h"},
		"no unit":           {withSource + "[checks.tcp]\ninterval = '30'", "/e.toml:4: checks.tcp.interval: ", `"1h30m"`},
		"not one of":        {withSource + "[node]\nlocal_policy = 'reject'", "/e.toml:4: node.local_policy: ", `"drop" or "cluster"`},
		"log level":         {withSource + "[log]\nlevel = 'loud'", "/e.toml:4: log.level: ", `"debug", "info", "warn" or "error"`},
		"address":           {withSource + "[node]\naddresses = ['::ffff:192.0.2.1']", "/e.toml:4: node.addresses: ", "192.0.2.1"},
		"loopback address":  {withSource + "[node]\naddresses = ['127.0.0.1']", "/e.toml:4: node.addresses: ", `"127.0.0.1"`},
		"two of a family":   {withSource + "[node]\naddresses = ['192.0.2.1','192.0.2.2']", "/e.toml:4: node.addresses: ", "IPv4"},
		"range with host":   {withSource + "[proxy]\nservice_cidrs = ['10.96.0.1/12']", "/e.toml:4: proxy.service_cidrs: ", "10.96.0.0/12"},
		"twice":             {withSource + "[proxy]\nservice_cidrs = ['10.0.0.0/8', '10.0.0.0/8']", "/e.toml:4: proxy.service_cidrs: ", `"10.0.0.0/8"`},
		"node port address": {withSource + "[proxy]\nnodeport_addresses = ['any']", "/e.toml:4: proxy.nodeport_addresses: ", `"all"`},
		"external IP":       {withSource + "[proxy]\nallow_external_ips = ['all']", "/e.toml:4: proxy.allow_external_ips: ", `"host"`},
		"port range":        {withSource + "[proxy]\nnodeport_range = '32767-30000'", "/e.toml:4: proxy.nodeport_range: ", `"30000-32767"`},
		"port 0":            {withSource + "[proxy]\nnodeport_range = '0-9'", "/e.toml:4: proxy.nodeport_range: ", `"0-9"`},
		"one port":          {withSource + "[proxy]\nnodeport_range = '30000'", "/e.toml:4: proxy.nodeport_range: ", `"30000"`},
		"denied endpoint":   {withSource + "[proxy]\ndeny_endpoints = ['all']", "/e.toml:4: proxy.deny_endpoints: ", `"host"`},
		"backend":           {withSource + "[proxy]\nbackend = 'x'", "/e.toml:4: proxy.backend: ", `"nftables", "iptables" or "other"`},
		"family":            {withSource + "[proxy]\nip_families = ['ipv4']", "/e.toml:4: proxy.ip_families: ", `"IPv4" or "IPv6"`},
		"interface":         {withSource + "[proxy]\nbridge_interface = 'a b'", "/e.toml:4: proxy.bridge_interface: ", `"a b"`},
		"long interface":    {withSource + "[proxy]\nbridge_interface = 'a23456789012345b'", "/e.toml:4: proxy.bridge_interface: ", `"a23456789012345b"`},
		"long prefix":       {withSource + "[proxy]\ninterface_name_prefix = 'a23456789012345'", "/e.toml:4: proxy.interface_name_prefix: ", `"a23456789012345*"`},
		"prefix as bridge":  {withSource + "[proxy]\nbridge_interface = 'veth*'", "/e.toml:4: proxy.bridge_interface: ", "proxy.interface_name_prefix"},
		"prefix with a *":   {withSource + "[proxy]\ninterface_name_prefix = 'veth*'", "/e.toml:4: proxy.interface_name_prefix: ", `"veth**"`},
		"listen address":    {withSource + "[health]\naddress = 'localhost:80'", "/e.toml:4: health.address: ", `"localhost"`},
		"listen port":       {withSource + "[health]\naddress = ':0'", "/e.toml:4: health.address: ", "1 to 65535"},
		"empty path":        {withSource + "[control]\nsocket = ''", "/e.toml:4: control.socket: ", ""},
		"empty path in it":  {"[source.file]\npaths = ['']", "/e.toml:3: source.file.paths: ", ""},
		"label selector":    {"[source.kube]\nkubeconfig = '/k'\nlabel_selector = 'a in'", "/e.toml:4: source.kube.label_selector: ", `"a in"`},
		"namespace":         {"[source.kube]\nkubeconfig = '/k'\nnamespaces = ['A']", "/e.toml:4: source.kube.namespaces: ", `"A"`},
		"no source":         {"", "/e.toml: ", "source.file.paths"},
		"kube key alone":    {withSource + "[source.kube]\nnamespaces = ['a']", "/e.toml:4: source.kube.namespaces: ", "source.kube.kubeconfig"},
		"mode needs key":    {withSource + "[proxy]\nlocal_detection = 'bridge_interface'", "/e.toml: proxy.bridge_interface: ", "proxy.local_detection"},
		"key needs mode":    {withSource + "[proxy]\nbridge_interface = 'cni0'", "/e.toml:4: proxy.bridge_interface: ", "proxy.local_detection"},
		"key for nothing":   {withSource + "[metrics]\naddress = ''\npprof = true", "/e.toml:5: metrics.pprof: ", "metrics.address"},
		"checked source":    {withSource + "[checks]\ntcp = { sources = ['api'] }", "/e.toml:4: checks.tcp.sources: ", `"file" or "kube"`},
		"checks of no file": {"[source.kube]\nkubeconfig = '/k'\n[checks.tcp]\nsources = ['kube', 'file']", "/e.toml:5: checks.tcp.sources: ", "source.file.paths"},
		"checks of no API":  {withSource + "[checks.tcp]\nsources = ['kube']", "/e.toml:4: checks.tcp.sources: ", "source.kube.kubeconfig"},
		"checks of nothing": {withSource + "[checks]\ntcp = { interval = '2s' }", "/e.toml:4: checks.tcp.interval: ", "checks.tcp.sources"},
		"failures alone":    {withSource + "[checks.tcp]\nfailures = 3", "/e.toml:4: checks.tcp.failures: ", "checks.tcp.sources"},
		"fault ID":          {withSource + "[doctor]\nignore = ['no-endpoint', 'route-service']", "/e.toml:4: doctor.ignore: ", `"route-services"`},
		"no failure":        {withSource + "[checks.tcp]\nsources = ['file']\nfailures = 0", "/e.toml:5: checks.tcp.failures: ", "1 to 100"},
		"syntax":            {withSource + "[proxy", "/e.toml:3: ", ""},
		"same key twice":    {withSource + "[proxy]\nbackend = 'nftables'\nbackend = 'nftables'", "/e.toml:5: ", ""},
		"new version":       {"version = 2", "/e.toml:2: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load([]file{{"/e.toml", []byte("version = 1\n" + c.text)}}, "host", choices)
			if err == nil || !strings.HasPrefix(err.Error(), c.at) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("error:\n%v\nwant it to begin with %q and to name %q", err, c.at, c.names)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one fault:\n%v", err)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	const rest = "\nsource.file.paths=['m']"
	for text, want := range map[string]string{
		"":              "/e.toml: version: ",
		"version = 2":   "/e.toml:1: version: ",
		"version = '1'": "/e.toml:1: version: ",
	} {
		if _, err := load([]file{{"/e.toml", []byte(text + rest)}}, "host", choices); err == nil ||
			!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

func TestAllErrorsAreReported(t *testing.T) {
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

func TestInvalidHostNameNeedsNodeName(t *testing.T) {
	const text = "version = 1\nsource.file.paths=['m']\n"
	if _, err := load([]file{{"/e.toml", []byte(text)}}, "my_host", choices); err == nil ||
		!strings.HasPrefix(err.Error(), "/e.toml: node.name: ") {
		t.Errorf("error %v", err)
	}
	c, err := load([]file{{"/e.toml", []byte(text + "node.name='edge'")}}, "my_host", choices)
	if err != nil || c.Node.Name != "edge" {
		t.Errorf("node.name does not help: %v", err)
	}
}
