package tracker

import (
	"net/netip"
	"slices"
	"testing"

	"edgeway/daemon/source"
)

// The snapshot lists the addresses of all API servers. Until the kube source reports addresses, the snapshot lists the
// addresses from the last-known state.
func TestAPIServers(t *testing.T) {
	tr, file, kube, last := threeLayers()
	api := func(name string, addrs ...string) *source.APIServer {
		a := &source.APIServer{Name: name}
		for _, s := range addrs {
			a.Addrs = append(a.Addrs, netip.MustParseAddr(s))
		}
		return a
	}
	want := func(want ...string) []netip.Addr {
		t.Helper()
		got := mustSnapshot(t, tr).APIServers
		if !slices.Equal(got, api("", want...).Addrs) {
			t.Errorf("got %v, want %v", got, want)
		}
		return got
	}
	last.Upsert(api("https://a", "192.0.2.9"))
	last.Synced()
	file.Synced()
	want("192.0.2.9")
	changed := func() bool { return len(tr.Changed()) > 0 }
	for changed() {
		<-tr.Changed()
	}
	kube.Upsert(api("https://a", "192.0.2.1", "2001:db8::1"))
	if !changed() {
		t.Error("a new address is not announced")
	}
	before := want("192.0.2.1", "2001:db8::1")
	kube.Upsert(svc("a"))
	if after := want("192.0.2.1", "2001:db8::1"); &after[0] != &before[0] {
		t.Error("equal addresses are not shared")
	}
	kube.Upsert(api("https://b", "192.0.2.1", "192.0.2.0"))
	kube.Synced()
	want("192.0.2.0", "192.0.2.1", "2001:db8::1")
	kube.Delete(api("https://a").Key())
	kube.Delete(api("https://b").Key())
	want()
}

func TestAPIServerPorts(t *testing.T) {
	for url, want := range map[string]uint16{
		"https://192.0.2.1:6443": 6443, "https://[2001:db8::1]:8443/base": 8443, "https://api.example": 443, "http://api.example": 80,
		"https://api.example:99999": 0, "192.0.2.1:6443": 6443, "localhost:6443": 6443, "api.example": 443,
	} {
		tr := New(Layer{Name: "kube"})
		sink := tr.Sink("kube")
		sink.Upsert(&source.APIServer{Name: url, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
		sink.Synced()
		if s, _ := tr.Snapshot(); !slices.Equal(s.APIPorts, []uint16{want}) {
			t.Errorf("%s: got %v, want %d", url, s.APIPorts, want)
		}
	}
}
