package connect

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func listening(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// closedAddr returns an address that refuses connections, because no program listens on its port.
func closedAddr(n int) netip.AddrPort {
	return netip.MustParseAddrPort(fmt.Sprintf("127.0.97.%d:9", n))
}

func service1(protocol plan.Protocol, frontend netip.AddrPort, endpoints ...netip.AddrPort) *plan.ServicePort {
	svc := &plan.ServicePort{
		Name: plan.ServicePortName{Namespace: "default", Name: "web", Protocol: protocol}, Family: plan.IPv4,
		Frontends: []plan.Frontend{{Kind: plan.ClusterIP, Addr: frontend.Addr(), Port: frontend.Port()}},
	}
	for _, e := range endpoints {
		svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool], plan.Endpoint{Addr: e})
	}
	return svc
}

// In these tests, each frontend is itself a server, because no rule translates connections.
func TestLookFindsFaultySide(t *testing.T) {
	up, down := listening(t), closedAddr(1)
	for name, c := range map[string]struct {
		svc   *plan.ServicePort
		level fault.Severity
		says  []string
		fix   string
	}{
		"all answer":         {service1(plan.TCP, up, up), fault.OK, []string{"default/web/TCP", "1 frontend", "1 endpoint"}, ""},
		"a dead endpoint":    {service1(plan.TCP, down, closedAddr(2)), fault.Problem, []string{"cannot connect to any endpoint of default/web/TCP", "127.0.97.2:9 refuses"}, "127.0.97.2:9"},
		"one of two is dead": {service1(plan.TCP, up, up, closedAddr(3)), fault.Problem, []string{"1 of 2 endpoints", "127.0.97.3:9 refuses"}, "a.key"},
		"the frontend":       {service1(plan.TCP, down, up), fault.Problem, []string{"The cause is in this host", down.String() + " refuses"}, "edgeway doctor --connect default/web --trace"},
		"UDP is not asked":   {service1(plan.UDP, down, down), fault.Problem, []string{"default/web"}, "edgeway services default/web"},
		"no endpoint at all": {service1(plan.TCP, down), fault.Problem, []string{"default/web"}, "edgeway services default/web"},
		"another Service":    {func() *plan.ServicePort { s := service1(plan.TCP, up, up); s.Name.Name = "other"; return s }(), fault.Problem, []string{"default/web"}, ""},
		"a refusal over UDP": {service1(plan.UDP, down, closedAddr(4)), fault.Problem, []string{"127.0.97.4:9 refuses"}, ""},
		"a policy of sources": {func() *plan.ServicePort {
			s := service1(plan.TCP, up, up)
			s.Frontends[0].AllowFrom = []netip.Prefix{}
			return s
		}(), fault.Problem, nil, ""},
	} {
		got := Run(t.Context(), Options{
			Plan: &plan.Plan{Node: &plan.Node{}, Services: []*plan.ServicePort{c.svc}}, Service: "default/web", ChecksSetting: "a.key", UDP: strings.Contains(name, "over UDP"),
		})
		if len(got) != 1 || got[0].Severity != c.level || !strings.Contains(got[0].Fix, c.fix) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for _, words := range c.says {
			if !strings.Contains(got[0].Message, words) {
				t.Errorf("%s: %q is not in %q", name, words, got[0].Message)
			}
		}
	}
}

func TestLookWithoutNameIsBounded(t *testing.T) {
	p := &plan.Plan{Node: &plan.Node{}}
	up := listening(t)
	for i := range maxServices + 3 {
		svc := service1(plan.TCP, up, up)
		svc.Name.Name = fmt.Sprintf("web-%d", i)
		p.Services = append(p.Services, svc)
	}
	got := Run(t.Context(), Options{Plan: p})
	last := got[len(got)-1]
	if len(got) != maxServices+1 || last.Severity != fault.Warning || !strings.HasPrefix(last.Message, "3 ") {
		t.Errorf("%d findings, at last %+v", len(got), last)
	}
}

// If time runs out before the doctor tries an endpoint, the doctor does not report the endpoint as dead.
func TestLookAfterTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	up := listening(t)
	got := Run(ctx, Options{Plan: &plan.Plan{
		Node:     &plan.Node{},
		Services: []*plan.ServicePort{service1(plan.TCP, up, up)},
	}})
	if len(got) != 1 || got[0].Severity != fault.Warning || !strings.Contains(got[0].Message, "3m0s") {
		t.Errorf("%+v", got)
	}
}

// dial distinguishes a server that does not respond from a server that refuses connections.
func TestDialDistinguishesSilenceFromRefusal(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), responseTimeout/10)
	defer cancel()
	if got := dial(ctx, plan.UDP, conn.LocalAddr().(*net.UDPAddr).AddrPort(), 0); got != silent {
		t.Errorf("a server that says nothing %s", got)
	}
	port, err := freePort(plan.UDP)
	if err != nil {
		t.Fatal(err)
	}
	if got := dial(t.Context(), plan.UDP, closedAddr(5), port); got != refused {
		t.Errorf("nobody %s", got)
	}
}
