package flowtable

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// tableName, fastpath and the names of the sets of ports are the KEP's, so that who knows it finds them.
	tableName = "kube-proxy-flowtable"
	fastpath  = "fastpath"
	// last is the priority of the chain and of the flowtable: behind all others, see the package comment. What anybody is known
	// to have in the forward hook has 10 (firewalld) or 50 (iptables' table security) at most.
	last = 1000
	// devicesPerCommand is the kernel's NFT_NETDEVICE_MAX (7.2): a message that names more is refused. A flowtable may have more.
	devicesPerCommand = 256
	// elementsPerCommand keeps a message below the size that a socket takes.
	elementsPerCommand = 1000
)

// whole gives the commands that write the table anew. All of them are one transaction: there is no moment without it.
func whole(c *contents, devices []string, opts Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "add table inet %[1]s\ndelete table inet %[1]s\n", tableName)
	if c.idle() {
		return b.String()
	}
	fmt.Fprintf(&b, "add table inet %s\n", tableName)
	for i, set := range sets {
		if c.six || i != ports6 && i != addrs6 {
			fmt.Fprintf(&b, "add set inet %s %s { type %s; }\n", tableName, set.name, set.typ)
		}
	}
	b.WriteString(c.elements())
	b.WriteString(flowtable(devices))
	fmt.Fprintf(&b, "add chain inet %s %s { type filter hook forward priority %d; policy accept; }\n", tableName, fastpath, last)
	for _, rule := range rules(c.six, opts.AfterPackets) {
		fmt.Fprintf(&b, "add rule inet %s %s %s\n", tableName, fastpath, rule)
	}
	return b.String()
}

// flowtable gives the commands that add the flowtable, or devices to it.
func flowtable(devices []string) string {
	var b strings.Builder
	add := func(list string) {
		fmt.Fprintf(&b, "add flowtable inet %s %s { hook ingress priority %d; %scounter; }\n", tableName, fastpath, last, list)
	}
	if len(devices) == 0 {
		add("")
	}
	for chunk := range slices.Chunk(devices, devicesPerCommand) {
		add("devices = { \"" + strings.Join(chunk, `", "`) + "\" }; ")
	}
	return b.String()
}

// rules gives those of the chain. What they ask first almost no packet of others has. One direction is enough: the kernel
// takes a connection as a whole. Of what another than connection tracking has translated, as IPVS does, the original direction is
// no established one.
func rules(six bool, afterPackets int) (out []string) {
	established := "ct status dnat ct state established ct direction original meta l4proto { tcp, udp } "
	if afterPackets > 0 { // with such a rule the kernel begins to count the packets of new connections (nft_ct_get_init)
		established += fmt.Sprintf("ct packets > %d ", afterPackets)
	}
	offer := func(of string) {
		out = append(out, established+of+" flow add @"+fastpath)
	}
	family := func(ip string, ports, addrs int) {
		offer(fmt.Sprintf("meta l4proto . ct original %s daddr . ct original proto-dst @%s", ip, sets[ports].name))
		offer(fmt.Sprintf("ct original %s daddr @%s meta l4proto . ct original proto-dst @%s", ip, sets[addrs].name, sets[nodePorts].name))
	}
	family("ip", ports4, addrs4)
	if six {
		family("ip6", ports6, addrs6)
	}
	return out
}
