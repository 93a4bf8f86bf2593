package hostile_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/hostile"
	"edgeway/test/plantest"
)

var (
	env = proxiers.Env{
		Logger: slog.New(slog.DiscardHandler), Families: []plan.Family{plan.IPv4, plan.IPv6}, MasqueradeBit: 14,
		Drift: func(string) {}, Wake: func() {}, Progress: func(int, int) {},
	}
	apiServer = netip.MustParseAddr("192.0.2.10")
	anywhere  = prefixes("0.0.0.0/0", "::/0")
	// forbiddenRanges holds the address ranges that frontends and endpoints must not use: loopback, link-local,
	// multicast and reserved addresses.
	forbiddenRanges = prefixes("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/96",
		"fe80::/10", "ff00::/8",
		"64:ff9b::/104", "64:ff9b::127.0.0.0/104", "64:ff9b::169.254.0.0/112", "64:ff9b::224.0.0.0/100",
		"64:ff9b::240.0.0.0/100")
	// metadataAddrs holds the addresses of cloud metadata services.
	metadataAddrs = addrs("169.254.169.254", "100.100.100.200", "192.0.0.192", "192.0.0.170", "168.63.129.16",
		"fd00:ec2::254", "fd20:ce::254")
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func testHost() *nodeinfo.Host {
	return &nodeinfo.Host{
		Addrs: []nodeinfo.Addr{
			{Addr: netip.MustParseAddr("127.0.0.1"), Interface: "lo"},
			{Addr: netip.MustParseAddr("192.0.2.1"), Interface: "eth0", Primary: true},
			{Addr: netip.MustParseAddr("::1"), Interface: "lo"},
			{Addr: netip.MustParseAddr("2001:db8::1"), Interface: "eth0", Primary: true},
		},
		Gateways:   addrs("192.0.2.254", "2001:db8::fffe", "fe80::1"),
		Broadcasts: addrs("192.0.2.0", "192.0.2.255"),
	}
}

// options returns a host's planner options. Each bit in flags turns on one setting.
func options(flags byte) planner.Options {
	on := func(bit int) bool { return flags&(1<<bit) != 0 }
	o := planner.Options{Node: config.Node{Name: "here"}, Proxy: config.Proxy{
		AllowExternalIPs: config.HostRanges{Prefixes: anywhere}, MasqueradeAll: on(0),
		NodePortAddresses: config.NodePortAddresses{Primary: true, Localhost: on(2), All: on(3)},
		ClusterCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")},
		BridgeInterface:   "cni0", InterfaceNamePrefix: "veth",
	}}
	if on(1) {
		o.Node.LocalPolicy = config.LocalCluster
	}
	modes := []config.LocalDetection{
		config.DetectNone, config.DetectNodeCIDR, config.DetectClusterCIDR, config.DetectBridge, config.DetectPrefix,
	}
	o.Proxy.LocalDetection = modes[int(flags>>4&7)%len(modes)]
	if on(7) {
		o.Proxy.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	}
	return o
}

// decode returns the objects in a JSON stream, up to the first syntax error or the 100th object.
func decode(stream []byte) (objects []any) {
	for d := json.NewDecoder(bytes.NewReader(stream)); len(objects) < 100; {
		var raw json.RawMessage
		var meta metav1.TypeMeta
		if d.Decode(&raw) != nil {
			return objects
		}
		if json.Unmarshal(raw, &meta) != nil {
			continue
		}
		var object any
		switch meta.Kind {
		case "Service":
			object = new(corev1.Service)
		case "EndpointSlice":
			object = new(discoveryv1.EndpointSlice)
		case "Node":
			object = new(corev1.Node)
		case "ServiceCIDR":
			object = new(networkingv1.ServiceCIDR)
		default:
			continue
		}
		if json.Unmarshal(raw, object) == nil {
			objects = append(objects, object)
		}
	}
	return objects
}

func put(c *convert.Converter, sink source.Sink, object any) {
	switch o := object.(type) {
	case *corev1.Service:
		if out, ok := c.Service(o); ok {
			sink.Upsert(out)
		}
	case *discoveryv1.EndpointSlice:
		if out, ok := c.EndpointSlice(o); ok {
			sink.Upsert(out)
		}
	case *corev1.Node:
		sink.Upsert(c.Node(o))
	case *networkingv1.ServiceCIDR:
		sink.Upsert(c.ServiceCIDR(o))
	}
}

func plans(t *testing.T, objects []any, flags byte) (first, second *plan.Plan) {
	t.Helper()
	tr := tracker.New(tracker.Layer{Name: "kube"})
	sink, p, c := tr.Sink("kube"), planner.New(options(flags)), new(convert.Converter)
	sink.Upsert(&source.APIServer{Name: "https://192.0.2.10", Addrs: []netip.Addr{apiServer}})
	sink.Synced()
	host := testHost()
	step := func(objects []any, prev *plan.Plan) *plan.Plan {
		for _, o := range objects {
			put(c, sink, o)
		}
		snap, _ := tr.Snapshot()
		next, problems := p.Plan(snap, host, prev)
		for _, problem := range slices.Concat(snap.Problems, problems) {
			text := problem.String()
			// The API server validates object names, so Edgeway prints these names unchanged.
			if bad := hostile.FindControl(problem.Field + problem.Message); bad != "" ||
				len(problem.Field+problem.Message) > 1000 {
				t.Errorf("problem %q: %s", text, bad)
			}
		}
		check(t, next)
		return next
	}
	half := (len(objects) + 1) / 2
	first = step(objects[:half], nil)
	return first, step(objects[half:], first)
}

func check(t *testing.T, p *plan.Plan) {
	t.Helper()
	if err := plantest.Validate(p); err != nil {
		t.Error(err)
	}
	for _, svc := range p.Services {
		for _, f := range svc.Frontends {
			if f.Kind != plan.NodePort && (forbidden(f.Addr) || isReserved(p, svc.Name, f)) {
				t.Errorf("%s has the %s %s", svc.Name, f.Kind, f.Addr)
			}
		}
		for _, pool := range svc.Pools {
			for _, e := range pool {
				if forbidden(e.Addr.Addr()) || e.Addr.Port() == 0 {
					t.Errorf("%s has the endpoint %s", svc.Name, e.Addr)
				}
			}
		}
	}
	for _, cidr := range p.Node.ServiceCIDRs {
		if cidr.Bits() == 0 || slices.ContainsFunc(append(testHost().Gateways, apiServer), cidr.Contains) {
			t.Errorf("the addresses of %s are the Services', among them the API server's or a gateway's", cidr)
		}
	}
}

func forbidden(a netip.Addr) bool {
	return !a.IsValid() || a.Is4In6() || a.Zone() != "" || slices.Contains(testHost().Broadcasts, a) ||
		slices.ContainsFunc(forbiddenRanges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// isReserved reports whether the frontend's address belongs to the API server, a metadata service, a gateway or the
// host. Only the Service default/kubernetes may use the API server's address, and only as its ClusterIP. Only a
// load-balancer address may be an address of the host.
func isReserved(p *plan.Plan, name plan.ServicePortName, f plan.Frontend) bool {
	if f.Addr == apiServer {
		return f.Kind != plan.ClusterIP || name.Namespace != "default" || name.Name != "kubernetes"
	}
	return slices.Contains(metadataAddrs, f.Addr) || slices.Contains(testHost().Gateways, f.Addr) ||
		f.Kind != plan.LoadBalancerIP && slices.Contains(p.Node.HostAddrs, f.Addr)
}

func elements(p *plan.Plan) int {
	n := len(p.HealthChecks) + len(p.Node.HostAddrs) + len(p.Node.PodSources) + len(p.Node.ServiceCIDRs)
	for _, svc := range p.Services {
		endpoints := len(svc.Pools[plan.ClusterPool]) + len(svc.Pools[plan.LocalPool])
		for _, f := range svc.Frontends {
			n += 1 + endpoints + len(f.AllowFrom)
		}
	}
	return n
}

// verifyText fails the test unless the text is plain ASCII of at most limit bytes.
func verifyText(t *testing.T, text string, limit int) {
	t.Helper()
	plain := func(r rune) bool { return r == '\n' || r >= ' ' && r <= '~' }
	if i := bytes.IndexFunc([]byte(text), func(r rune) bool { return !plain(r) }); i >= 0 {
		t.Errorf("at %d of the input of the program there is %q", i, text[i:min(len(text), i+20)])
	}
	if len(text) > limit {
		t.Errorf("%d bytes, want at most %d", len(text), limit)
	}
}

// addSeeds adds two kinds of seeds: the corpus, and eight fixed byte sequences for Choices.
func addSeeds(f *testing.F) {
	f.Helper()
	for i, stream := range hostile.Streams(f) {
		f.Add(stream, []byte{}, byte(1<<i))
		f.Add(stream, []byte{}, byte(0xfc))
	}
	for seed := range byte(8) {
		choices := make([]byte, 400)
		for i := range choices {
			choices[i] = byte(i*i)*seed + byte(i)/8
		}
		f.Add([]byte{}, choices, seed*37)
	}
}
