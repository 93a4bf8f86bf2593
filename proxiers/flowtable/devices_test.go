package flowtable

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

// What the endpoint is behind: the device itself, and what is above it. Each is tried with all devices and with those alone.
func TestDeviceKinds(t *testing.T) {
	for _, c := range []struct {
		kind    string
		devices []string
		// node and host are commands of ip for the two ends; M stands for the hardware address of the device.
		node, host string
	}{
		{"veth", []string{"one"}, "", ""},
		{"bridge", []string{"br0"}, "link add br0 address M type bridge; link set one master br0; link set br0 up", ""},
		{"port", []string{"one"}, "link add br0 address M type bridge; link set one master br0; link set br0 up", ""},
		{"vlan", []string{"one"}, "link add link one name br0 type vlan id 5; link set br0 up", "link add link eth0 name up0 type vlan id 5; link set up0 up"},
		{"bond", []string{"br0"}, "link set one down; link add br0 address M type bond mode active-backup; link set one master br0; link set br0 up", ""},
	} {
		t.Run(c.kind, func(t *testing.T) {
			for i, devices := range [][]string{nil, append(c.devices, "client")} {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					w := newWorld(t, Options{Devices: devices}, nftables.Component())
					link, err := net.InterfaceByName("one")
					if err != nil {
						t.Fatal(err)
					}
					mac := link.HardwareAddr.String()
					away := strings.Replace(mac, ":01:", ":02:", 1) // netlab gives the two ends these
					if c.node != "" {
						w.ip("", strings.ReplaceAll(c.node, " M ", " "+mac+" "))
						w.ip("", fmt.Sprintf("route replace 10.244.1.7 dev br0 scope link; neigh replace 10.244.1.7 lladdr %s dev br0 nud permanent", away))
						t.Cleanup(func() { w.ip("", "link del br0") })
					}
					if c.host != "" {
						w.ip("one", c.host)
						w.ip("one", fmt.Sprintf("route replace 169.254.1.1 dev up0 scope link; neigh replace 169.254.1.1 lladdr %s dev up0 nud permanent; route replace default via 169.254.1.1 dev up0", mac))
					}
					w.apply(w.web(1)...)
					w.wantFast(fmt.Sprintf("%s, devices %q", c.kind, devices), w.open(plan.TCP, service4, servicePort))
					w.wantFast(fmt.Sprintf("%s, devices %q, UDP", c.kind, devices), w.open(plan.UDP, service4, servicePort))
				})
			}
		})
	}
}

// ip runs commands of ip on an endpoint, or on the node.
func (w *world) ip(endpoint, commands string) {
	w.Helper()
	for command := range strings.SplitSeq(commands, "; ") {
		cmd := w.lab.Node.Command(context.WithoutCancel(w.Context()), "ip", strings.Fields(command)...)
		if endpoint != "" {
			cmd = w.endpoints[0].Command(w.Context(), "ip", strings.Fields(command)...)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			w.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
}
