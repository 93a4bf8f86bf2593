package control

import (
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestExplainSaysWhatDecideSays(t *testing.T) {
	p := testPlan()
	for _, tt := range []struct {
		src, dst, proto string
		origin, verdict string
		says            string // in the text
	}{
		{"192.0.2.99", "10.96.0.1:80", "", "outside", "forward", "10.2.0.1:8080 sees the client's address"},
		{"192.0.2.99", "10.96.0.1:80/tcp", "udp", "outside", "forward", "default/web:http/TCP"},
		{"10.1.0.1", "10.96.0.1:80", "tcp", "outside", "forward", "10.1.0.1:8080 sees this host's address (masquerade), on this host"},
		{"10.1.0.9@cni0", "192.0.2.7:30080", "TCP", "pod", "forward", "10.1.0.9 via cni0 (pod)"},
		{"host", "192.0.2.7:30080", "", "host", "forward", "192.0.2.7 (host)"},
		{"192.0.2.99", "192.0.2.7:30080", "", "outside", "forward", "NodePort *:30080"},
		{"192.0.2.99", "203.0.113.1:80", "", "outside", "drop", "loadBalancerSourceRanges"},
		{"192.0.2.99", "10.96.0.2:53/udp", "", "outside", "reject", "no ready endpoint"},
		{"192.0.2.99", "10.96.0.1:81", "", "outside", "reject", "no Service uses its port 81/TCP"},
		{"192.0.2.99", "10.96.9.9:81", "", "outside", "drop", "no Service has it"},
		{"host", "127.0.0.1:30080", "", "host", "forward", "10.1.0.1:8080 sees this host's address"},
		{"host", "127.0.0.1:30080", "", "host", "forward", "relayed to one of 1 endpoints of the local pool"},
		{"host", "127.0.0.1:22", "", "host", "pass", "not an address of a Service"},
		{"::ffff:192.0.2.99", "8.8.8.8:53", "udp", "outside", "pass", "not an address of a Service"},
		{"fd00::99", "[fd00::1]:80", "", "outside", "reject", "[fd00::1]:80/TCP"},
	} {
		e, err := Explain(p, noGaps, tt.src, tt.dst, tt.proto)
		if err != nil {
			t.Errorf("%s to %s: %v", tt.src, tt.dst, err)
			continue
		}
		var text strings.Builder
		if err := e.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if e.Origin != tt.origin || e.Verdict != tt.verdict || !strings.Contains(text.String(), tt.says) {
			t.Errorf("%s to %s: %s %s, want %s %s and %q in\n%s", tt.src, tt.dst, e.Origin, e.Verdict, tt.origin, tt.verdict, tt.says, &text)
		}
		if !strings.HasPrefix(text.String(), e.Verdict+": ") {
			t.Errorf("the text does not begin with the verdict:\n%s", &text)
		}
	}
}

func TestExplainRefusesWhatItCanNotRead(t *testing.T) {
	p := testPlan()
	for _, tt := range []struct{ src, dst, proto, want string }{
		{"", "10.96.0.1:80", "", "source"},
		{"somewhere", "10.96.0.1:80", "", "somewhere"},
		{"192.0.2.1", "10.96.0.1", "", "ADDRESS:PORT"},
		{"192.0.2.1", "10.96.0.1:99999", "", "10.96.0.1:99999"},
		{"192.0.2.1", "10.96.0.1:80/icmp", "", "icmp"},
		{"192.0.2.1", "[fd00::1]:80", "", "address families"},
		{"host", "[fd00::1]:80", "", "no IPv6 address"},
	} {
		if _, err := Explain(p, noGaps, tt.src, tt.dst, tt.proto); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q to %q: error %v, want %q", tt.src, tt.dst, err, tt.want)
		}
	}
}

func noGaps(*plan.ServicePort) []proxiers.Gap { return nil }

func TestGapsAreShown(t *testing.T) {
	gaps := func(svc *plan.ServicePort) []proxiers.Gap {
		if svc.Affinity == 0 {
			return nil
		}
		return []proxiers.Gap{{Feature: "session affinity", Reason: "it forgets"}}
	}
	p := testPlan()
	found := 0
	for i, s := range NewPlan(p, nil, gaps).Services {
		if (len(s.Gaps) == 1) != (p.Services[i].Affinity != 0) {
			t.Errorf("%s: gaps %q", s.Name, s.Gaps)
		}
		found += len(s.Gaps)
		for _, f := range s.Frontends {
			if f.Kind != plan.ClusterIP.String() {
				continue
			}
			var text strings.Builder
			from := "192.0.2.99"
			if p.Services[i].Family == plan.IPv6 {
				from = "2001:db8::99"
			}
			e, err := Explain(p, gaps, from, f.Address, strings.ToLower(p.Services[i].Name.Protocol.String()))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.WriteText(&text); err != nil || strings.Contains(text.String(), "session affinity: it forgets") != (len(s.Gaps) == 1) {
				t.Errorf("%v\n%s", err, &text)
			}
		}
	}
	if found == 0 {
		t.Error("no Service of the test has a gap")
	}
}
