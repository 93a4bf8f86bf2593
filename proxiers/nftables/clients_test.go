package nftables

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	rtnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// clients returns the contents of the client map for the cluster pool and a port.
func clients(t *testing.T, svc *plan.ServicePort, port uint16) map[string]string {
	t.Helper()
	c, err := netlink.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	found := map[string]string{}
	eachElement(t, c, svc.Family, ClientMapName(svc, plan.ClusterPool, port), func(raw []byte) {
		client, _ := netip.AddrFromSlice(netlink.Attr(netlink.Attr(raw, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE))
		endpoint, _ := netip.AddrFromSlice(netlink.Attr(netlink.Attr(raw, unix.NFTA_SET_ELEM_DATA),
			unix.NFTA_DATA_VALUE))
		found[client.String()] = endpoint.String()
	})
	return found
}

func stickyPlan(list ...plan.Endpoint) *plan.Plan {
	svc := service("sticky", []plan.Frontend{clusterIP("10.96.0.4", 53)}, list...)
	svc.Name.Protocol, svc.Affinity = plan.UDP, time.Hour
	return newPlan(testNode(), svc)
}

func TestClientsOfRemovedEndpointsAreForgotten(t *testing.T) {
	newHost(t)
	p, drift := testProxier(t)
	both := stickyPlan(endpoint("10.244.1.8:53"), endpoint("10.244.1.9:53"))
	apply(t, p, nil, both)
	name := ClientMapName(both.Services[0], plan.ClusterPool, 53)
	nft(t, "add element ip edgeway "+name+" { 198.51.100.1 : 10.244.1.8, 198.51.100.2 : 10.244.1.9, 198.51.100.3 : 10.244.1.7 }")
	drift.wait(t)
	apply(t, p, nil, both) // a full sync also keeps the clients in the maps
	want := map[string]string{"198.51.100.1": "10.244.1.8", "198.51.100.2": "10.244.1.9"}
	if got := clients(t, both.Services[0], 53); len(got) != 2 || got["198.51.100.1"] != want["198.51.100.1"] ||
		got["198.51.100.2"] != want["198.51.100.2"] {
		t.Errorf("after a full sync: clients %v, want %v", got, want)
	}
	one := withEndpoints(both, 0, endpoint("10.244.1.9:53"))
	apply(t, p, both, one)
	if got := clients(t, one.Services[0], 53); len(got) != 1 || got["198.51.100.2"] != "10.244.1.9" {
		t.Errorf("after the removal of 10.244.1.8: clients %v", got)
	}
	if drift.count() != 1 {
		t.Errorf("drift: %q, want only the elements that the test added", drift.reasons)
	}
}

// TestPacketsRecordClients sends packets through the rules to endpoints on the host's loopback interface.
func TestPacketsRecordClients(t *testing.T) {
	newHost(t)
	loopback(t, "10.244.1.8/32", "10.244.1.9/32", "192.0.2.1/32")
	p, drift := testProxier(t)
	next := stickyPlan(endpoint("10.244.1.8:53"), endpoint("10.244.1.9:53"))
	apply(t, p, nil, next)
	var served []string
	got := make(chan string)
	for _, ip := range []string{"10.244.1.8", "10.244.1.9"} {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip), Port: 53})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			for buf := make([]byte, 1); ; {
				if _, err := conn.Read(buf); err != nil {
					return
				}
				got <- ip
			}
		}()
	}
	for range 10 {
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("192.0.2.1")},
			&net.UDPAddr{IP: net.ParseIP("10.96.0.4"), Port: 53})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		select {
		case ip := <-got:
			served = append(served, ip)
		case <-time.After(10 * time.Second):
			t.Fatal("a packet to the ClusterIP did not arrive")
		}
		conn.Close()
	}
	if slices.Sort(served); served[0] != served[9] {
		t.Errorf("one client was served by %v", served)
	}
	if got := clients(t, next.Services[0], 53); len(got) != 1 || got["192.0.2.1"] != served[0] {
		t.Errorf("clients %v, want 192.0.2.1 at %s", got, served[0])
	}
	time.Sleep(readTimeout)
	if drift.count() != 0 {
		t.Errorf("what packets teach was taken for drift: %q", drift.reasons)
	}
}

func loopback(t *testing.T, addrs ...string) {
	t.Helper()
	lo, err := rtnetlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := rtnetlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		parsed, err := rtnetlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := rtnetlink.AddrAdd(lo, parsed); err != nil {
			t.Fatal(err)
		}
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if err := rtnetlink.RouteAdd(&rtnetlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere}); err != nil {
		t.Fatal(err)
	}
}
