package flowtable

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

// deviceKind is a type of device between the node and an endpoint.
type deviceKind struct {
	name string
	// node and host are ip commands that create br0 on the node and up0 on the endpoint's host. In these commands, M
	// stands for the hardware address of the device "one", N for the node's address, and E for the endpoint's address.
	node, host string
	// tunnel reports whether the device is a tunnel with its own address at each end.
	tunnel bool
}

var kinds = []deviceKind{
	{name: "veth"},
	{name: "bridge", node: "link add br0 address M type bridge; link set one master br0; link set br0 up"},
	{name: "port", node: "link add br0 address M type bridge; link set one master br0; link set br0 up"},
	{
		name: "vlan", node: "link add link one name br0 type vlan id 5; link set br0 up",
		host: "link add link eth0 name up0 type vlan id 5; link set up0 up",
	},
	{name: "bond", node: "link set one down; link add br0 address M type bond mode active-backup; link set one master br0; link set br0 up"},
	{
		name: "ipip", node: "link add br0 type ipip local N remote E; link set br0 up",
		host: "link add up0 type ipip local E remote N; link set up0 up", tunnel: true,
	},
	{
		name: "vxlan", node: "link add br0 type vxlan id 5 local N remote E dstport 4789; link set br0 up",
		host: "link add up0 type vxlan id 5 local E remote N dstport 4789; link set up0 up", tunnel: true,
	},
}

func TestDeviceKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			w := newWorld(t, nftables.Component())
			at := w.build(k)
			w.apply(w.webService(1, func(s *plan.ServicePort) {
				if s.Family == plan.IPv4 {
					s.Pools[0][0].Addr = netip.AddrPortFrom(at, endpointPort)
				}
			})...)
			w.wantOffloaded(k.name, w.open(plan.TCP, service4, servicePort))
			w.wantOffloaded(k.name+", UDP", w.open(plan.UDP, service4, servicePort))
		})
	}
}

// build creates the devices that connect the node to the endpoint, and returns the endpoint's address.
func (w *world) build(k deviceKind) netip.Addr {
	w.Helper()
	own := w.endpoints[0].Addr(service4)
	link, err := net.InterfaceByName("one")
	if err != nil {
		w.Fatal(err)
	}
	mac := link.HardwareAddr.String()
	away := strings.Replace(mac, ":01:", ":02:", 1) // the hardware address that netlab assigns to the endpoint's device
	words := strings.NewReplacer(" M ", " "+mac+" ", " N ", " "+netlab.NodeAddr4.String()+" ", " E ",
		" "+own.String()+" ", " E;", " "+own.String()+";", " N;", " "+netlab.NodeAddr4.String()+";")
	if k.node != "" {
		w.ip(nil, words.Replace(k.node))
		w.Cleanup(func() { w.ip(nil, "link del br0") })
	}
	if k.host != "" {
		w.ip(w.endpoints[0], words.Replace(k.host))
	}
	switch {
	case k.tunnel:
		inner := plantest.Addr("10.245.1.7")
		w.ip(nil, "addr add 10.245.0.1/16 dev br0")
		w.ip(w.endpoints[0], fmt.Sprintf("addr add %s/16 dev up0; route add %s via 10.245.0.1", inner,
			w.client.Addr(inner)))
		for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
			if _, err := w.endpoints[0].Start("tunnel", netip.AddrPortFrom(inner, endpointPort), p); err != nil {
				w.Fatal(err)
			}
		}
		return inner
	case k.host != "":
		w.ip(w.endpoints[0], fmt.Sprintf("route replace 169.254.1.1 dev up0 scope link; neigh replace 169.254.1.1 lladdr %s dev up0 nud permanent; route replace default via 169.254.1.1 dev up0", mac))
	}
	if k.node != "" {
		w.ip(nil, fmt.Sprintf("route replace %[1]s dev br0 scope link; neigh replace %[1]s lladdr %[2]s dev br0 nud permanent", own, away))
	}
	return own
}

func (w *world) ip(endpoint *netlab.Host, commands string) {
	w.Helper()
	if endpoint == nil {
		endpoint = w.lab.Node
	}
	for command := range strings.SplitSeq(commands, "; ") {
		cmd := endpoint.Command(context.WithoutCancel(w.Context()), "ip", strings.Fields(command)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
}

// The follower adds new devices to the flowtable. If many devices appear one after another, for example when pods
// start, the follower rewrites the nftables table at most once a second.
func TestDevicesThatCome(t *testing.T) {
	const pods = 200
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(1)...)
	s := w.open(plan.TCP, service4, servicePort)
	w.wantOffloaded("before", s)
	f := w.stages[1].(*follower)
	f.mu.Lock()
	others := len(f.deviceNames)
	f.mu.Unlock()
	t.Cleanup(func() {
		for i := range pods {
			_ = exec.Command("ip", "link", "del", fmt.Sprintf("pod%d", i)).Run()
		}
	})
	start := time.Now()
	for i := range pods {
		w.ip(nil, fmt.Sprintf("link add pod%d type veth peer name eth%d", i, i+1))
		if i%10 == 0 {
			w.ask(s)
		}
	}
	w.until("all devices are there", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.deviceNames) == others+2*pods
	})
	if n, most := f.writes[ofDevices].Load(), uint64(time.Since(start)/inspectionInterval)+2; n < 1 || n > most {
		t.Errorf("the table was written %d times for devices, want 1 to %d", n, most)
	}
	w.wantOffloaded("after", s)
	if listed := strings.Count(w.nft("list flowtables inet"), "pod"); listed != pods {
		t.Errorf("the flowtable has %d of the %d devices", listed, pods)
	}
	w.apply(w.webService(2)...)
	w.apply(w.webService(1)...)
	w.wantOffloaded("after the table was written with all of them", s)
}
