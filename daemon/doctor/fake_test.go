package doctor

import (
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// fakeSystem is an in-memory System. While a Monitor is running, a test must call edit to change the system.
type fakeSystem struct {
	mu                sync.Mutex
	files             map[string]string
	hops              map[string]nodeinfo.NextHop // hops holds the routes by prefix; the longest prefix wins
	links, advertised []string
	asked             int
	lookupErr         error // lookupErr is the error that each route lookup returns
}

func (f *fakeSystem) Read(path string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, ok := f.files[path]
	if !ok {
		return "", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return text, nil
}

func (f *fakeSystem) NextHop(to netip.Addr) (found nodeinfo.NextHop, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.lookupErr != nil {
		return found, f.lookupErr
	}
	best := -1
	for text, w := range f.hops {
		if p := netip.MustParsePrefix(text); p.Contains(to) && p.Bits() > best {
			found, best = w, p.Bits()
		}
	}
	if best < 0 {
		return found, unix.ENETUNREACH
	}
	return found, nil
}

func (f *fakeSystem) Links() ([]string, error)           { return f.links, nil }
func (f *fakeSystem) AdvertisedLinks() ([]string, error) { return f.advertised, nil }

func (f *fakeSystem) edit(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeSystem) set(path, value string) {
	f.edit(func() { f.files["/proc/sys/net/"+path] = value })
}

func on(device, source string) nodeinfo.NextHop {
	return nodeinfo.NextHop{Interface: device, Source: addr(source)}
}

func via(gateway, device, source string) (w nodeinfo.NextHop) {
	w = on(device, source)
	w.Gateway = addr(gateway)
	return w
}

func addr(text string) netip.Addr        { return netip.MustParseAddr(text) }
func endpoint(text string) plan.Endpoint { return plan.Endpoint{Addr: netip.MustParseAddrPort(text)} }

func forward(pool plan.Pool) [3]plan.Route {
	r := plan.Route{Pool: pool}
	return [3]plan.Route{r, r, r}
}

func frontend(kind plan.FrontendKind, a string) plan.Frontend {
	return plan.Frontend{Kind: kind, Addr: addr(a), Port: 80, Routes: forward(plan.ClusterPool)}
}

func servicePort(name string, frontends []plan.Frontend, endpoints ...string) *plan.ServicePort {
	svc := &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP},
		Family: plan.IPv4, Frontends: frontends,
	}
	for _, e := range endpoints {
		svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool], endpoint(e))
	}
	if strings.Contains(endpoints[0], "[") {
		svc.Family = plan.IPv6
	}
	return svc
}

func testHost(services ...*plan.ServicePort) (*Host, *fakeSystem) {
	f := &fakeSystem{
		files: map[string]string{},
		hops:  map[string]nodeinfo.NextHop{"0.0.0.0/0": via("192.0.2.1", "eth0", "192.0.2.10"), "192.0.2.0/24": on("eth0", "192.0.2.10")},
		links: []string{"eth0"},
	}
	f.set("ipv4/ip_forward", "1")
	f.set("ipv4/conf/eth0/forwarding", "1")
	f.set("ipv6/conf/all/forwarding", "1")
	if services == nil {
		services = append(services, servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")},
			"10.244.1.11:8080"))
	}
	h := &Host{
		Config: config.Default(), System: f, MaxLookups: 1000,
		Facts: Facts{Plan: &plan.Plan{
			Node: &plan.Node{
				Name:          "edge",
				HostAddrs:     []netip.Addr{addr("127.0.0.1"), addr("192.0.2.10"), addr("::1"), addr("fe80::1")},
				NodePortAddrs: []netip.Addr{addr("192.0.2.10")},
				ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/108")},
			},
			Services: services,
		}},
	}
	return h, f
}

// runCheck runs the check called name and formats each finding as a line such as "problem: MESSAGE | FIX".
func runCheck(t testing.TB, h *Host, name string) (lines []string) {
	t.Helper()
	i := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %s", name)
	}
	for _, f := range RunChecks(t.Context(), h, Checks()[i:i+1]) {
		line := f.Severity.String() + ": " + f.Message
		if f.Fix != "" {
			line += " | " + f.Fix
		}
		lines = append(lines, line)
		if (f.Severity == fault.OK) != (f.Fix == "") && !strings.Contains(f.Message, "cannot read") {
			t.Errorf("%s: a fault without a remedy, or the reverse: %q", name, line)
		}
	}
	return lines
}

// wantFindings compares the findings of a check with the wanted lines, in any order. The separator " … " splits a
// wanted line into parts, and a matching finding contains every part.
func wantFindings(t testing.TB, h *Host, name string, want ...string) {
	t.Helper()
	got := runCheck(t, h, name)
	if len(got) != len(want) {
		t.Errorf("%s: %d findings, want %d:\n%s", name, len(got), len(want), strings.Join(got, "\n"))
		return
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(line string) bool {
			return strings.HasPrefix(line, w[:2]) && containsAll(line, strings.Split(w, " … "))
		}) {
			t.Errorf("%s: no finding %q in:\n%s", name, w, strings.Join(got, "\n"))
		}
	}
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}
