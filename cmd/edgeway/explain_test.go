package main

import (
	"net"
	"strings"
	"testing"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor/connect"
)

// If no server responds, explain reports a failed connection even if the rules forward the connection.
func TestExplainTriesConnection(t *testing.T) {
	before := connectAny
	connectAny = connect.ConnectAny
	t.Cleanup(func() { connectAny = before })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const closed = "127.0.97.1:9"
	for name, c := range map[string]struct {
		origin, to, endpoint, protocol, want string
	}{
		"a live endpoint":        {"outside", closed, l.Addr().String(), "TCP", "forward"},
		"a dead endpoint":        {"outside", closed, closed, "TCP", "fail"},
		"UDP owes no answer":     {"outside", closed, closed, "UDP", "forward"},
		"the host, not answered": {"host", closed, l.Addr().String(), "TCP", "fail"},
		"the host, answered":     {"host", l.Addr().String(), closed, "TCP", "forward"},
	} {
		e := control.Explanation{
			Origin: c.origin, Verdict: "forward", Destination: c.to, Protocol: c.protocol, Service: "default/web:http/TCP",
			Endpoints: []control.ExplainedEndpoint{{Address: c.endpoint}},
		}
		tryConnection(t.Context(), &e)
		if e.Verdict != c.want {
			t.Errorf("%s: %s, want %s", name, e.Verdict, c.want)
		}
		if f := e.Faults; c.want == "fail" && (len(f) != 1 || !strings.Contains(f[0].Message, closed+" refuses") ||
			f[0].Fix != "edgeway doctor --connect default/web --trace") {
			t.Errorf("%s: faults %+v", name, f)
		}
	}
}
