package flowtable

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// kind is what an endpoint is behind.
type kind struct {
	name string
	// devices have to be among those of the fast path. Until Linux 6.12 at least, a bridge or an ipip tunnel will do alone; for 7.2
	// what it is made of has to be there.
	devices []string
	// node and host are commands of ip for the two ends, which make br0 and up0; M stands for the hardware address of the device,
	// N for the node's address, and E for the endpoint's.
	node, host string
	// tunnel has addresses of its own at both ends.
	tunnel bool
}

var kinds = []kind{
	{name: "veth", devices: []string{"one"}},
	{name: "bridge", devices: []string{"br0", "one"}, node: "link add br0 address M type bridge; link set one master br0; link set br0 up"},
	{name: "port", devices: []string{"one"}, node: "link add br0 address M type bridge; link set one master br0; link set br0 up"},
	{
		name: "vlan", devices: []string{"one"}, node: "link add link one name br0 type vlan id 5; link set br0 up",
		host: "link add link eth0 name up0 type vlan id 5; link set up0 up",
	},
	{name: "bond", devices: []string{"br0"}, node: "link set one down; link add br0 address M type bond mode active-backup; link set one master br0; link set br0 up"},
	{
		name: "ipip", devices: []string{"br0", "one"}, node: "link add br0 type ipip local N remote E; link set br0 up",
		host: "link add up0 type ipip local E remote N; link set up0 up", tunnel: true,
	},
	{
		name: "vxlan", devices: []string{"br0"}, node: "link add br0 type vxlan id 5 local N remote E dstport 4789; link set br0 up",
		host: "link add up0 type vxlan id 5 local E remote N dstport 4789; link set up0 up", tunnel: true,
	},
}

// Each kind is tried with all devices and with those alone that it takes.
func TestDeviceKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for i, devices := range [][]string{nil, append(slices.Clone(k.devices), "client")} {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					w := newWorld(t, Options{Devices: devices}, nftables.Component())
					at := w.build(k)
					w.apply(w.web(1, func(s *plan.ServicePort) {
						if s.Family == plan.IPv4 {
							s.Pools[0][0].Addr = netip.AddrPortFrom(at, endpointPort)
						}
					})...)
					w.wantFast(fmt.Sprintf("%s, devices %q", k.name, devices), w.open(plan.TCP, service4, servicePort))
					w.wantFast(fmt.Sprintf("%s, devices %q, UDP", k.name, devices), w.open(plan.UDP, service4, servicePort))
				})
			}
		})
	}
}

// build makes the devices, and gives the address that the endpoint has behind them.
func (w *world) build(k kind) netip.Addr {
	w.Helper()
	own := w.endpoints[0].Addr(service4)
	link, err := net.InterfaceByName("one")
	if err != nil {
		w.Fatal(err)
	}
	mac := link.HardwareAddr.String()
	away := strings.Replace(mac, ":01:", ":02:", 1) // netlab gives the two ends these
	words := strings.NewReplacer(" M ", " "+mac+" ", " N ", " "+netlab.NodeAddr4.String()+" ", " E ", " "+own.String()+" ", " E;", " "+own.String()+";", " N;", " "+netlab.NodeAddr4.String()+";")
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
		w.ip(w.endpoints[0], fmt.Sprintf("addr add %s/16 dev up0; route add %s via 10.245.0.1", inner, w.client.Addr(inner)))
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

// ip runs commands of ip on an endpoint, or on the node.
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

// Devices that come one after the other, as with pods, join the flowtable without a program being run for them, and without
// a connection being sent back to the rules.
func TestDevicesThatCome(t *testing.T) {
	const pods = 200
	w := newWorld(t, Options{}, nftables.Component())
	w.apply(w.web(1)...)
	s := w.open(plan.TCP, service4, servicePort)
	w.wantFast("before", s)
	f := w.stages[1].(*follower)
	w.mu.Lock()
	program := f.nft
	f.nft = nil // who runs it now panics
	tends, took, others := w.tends.Load(), w.tending, len(f.offloads)
	w.mu.Unlock()
	t.Cleanup(func() {
		for i := range pods {
			_ = exec.Command("ip", "link", "del", fmt.Sprintf("pod%d", i)).Run()
		}
	})
	for i := range pods {
		w.ip(nil, fmt.Sprintf("link add pod%d type veth peer name eth%d", i, i+1))
		if i%10 == 0 {
			w.ask(s)
		}
	}
	w.until("all devices are there", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.offloads) == others+2*pods
	})
	w.mu.Lock()
	n := w.tends.Load() - tends
	t.Logf("%d devices joined in %d transactions, of %s each", 2*pods, n, ((w.tending - took) / time.Duration(max(n, 1))).Round(time.Microsecond))
	w.mu.Unlock()
	w.wantFast("after", s)
	if listed := strings.Count(w.nft("list flowtables inet"), "pod"); listed != pods {
		t.Errorf("the flowtable has %d of the %d devices", listed, pods)
	}
	if n := f.writes[ofServices].Load() + f.writes[ofRules].Load() + f.writes[ofDevices].Load(); n != 0 {
		t.Errorf("the connections were sent back to the rules %d times", n)
	}
	w.mu.Lock()
	f.nft = program
	w.mu.Unlock()
	w.apply(w.web(2)...)
	w.apply(w.web(1)...)
	w.wantFast("after the table was written with all of them", s)
}

// No device of these machines forwards by itself, nor does any that Linux has for tests (netdevsim, 7.2): the kernel then does, and
// it is told which device cannot.
func TestHardware(t *testing.T) {
	w := newWorld(t, Options{Hardware: true}, nftables.Component())
	f := w.stages[1].(*follower)
	w.apply(w.web(1)...)
	s := w.open(plan.TCP, service4, servicePort)
	w.wantFast("by the kernel", s)
	if err := f.Degraded(); err == nil || !strings.HasPrefix(err.Error(), "the driver of the device ") {
		t.Errorf("it is said: %v", err)
	}
	// As long as it is there, nothing else is tried: connections are sent back in one transaction.
	w.apply(w.web(2)...)
	w.apply(w.web(1)...)
	w.wantFast("again", s)
}

// Without devices all that hardware is asked for is granted, until one comes that has none.
func TestHardwareUntilADeviceComes(t *testing.T) {
	w := newWorld(t, Options{Hardware: true, Devices: []string{"late*"}}, nftables.Component())
	f := w.stages[1].(*follower)
	w.apply(w.web(1)...)
	if err := f.Degraded(); err != nil || !strings.Contains(w.nft("list table inet "+tableName), "offload") {
		t.Errorf("without a device: %v", err)
	}
	w.ip(nil, "link add late0 type veth peer name other0")
	w.until("it is told of", func() bool { return f.Degraded() != nil })
	w.until("it is in the flowtable", func() bool { return strings.Contains(w.nft("list flowtables inet"), "late0") })
	w.ip(nil, "link del late0")
	if n := f.writes[ofDevices].Load(); n != 1 {
		t.Errorf("written %d times because of devices", n)
	}
}
