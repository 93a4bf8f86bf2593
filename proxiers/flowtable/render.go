package flowtable

import (
	"fmt"
	"slices"
	"strings"

	"edgeway/proxiers"
)

const (
	// tableName, fastpath and the names of the sets of ports are the KEP's, so that who knows it finds them.
	tableName = proxiers.FlowtableTable
	fastpath  = "fastpath"
	// offer is the chain that finds out whose a connection is.
	offer = "offer"
	// last is the priority of the chain and of the flowtable: behind all others, see the package comment. What anybody is known
	// to have in the forward hook has 10 (firewalld) or 50 (iptables' table security) at most.
	last = 1000
	// devicesPerCommand is less than the kernel's NFT_NETDEVICE_MAX: Linux 6.1 refuses a message that names so many, 7.2 one that
	// names more. A flowtable may have more.
	devicesPerCommand = 255
	// elementsPerCommand keeps a message below the size that a socket takes.
	elementsPerCommand = 1000
)

// whole gives the commands that write the table anew. All of them are one transaction: there is no moment without it.
func whole(c *contents, devices []string, opts Options) string {
	var b strings.Builder
	b.WriteString(noTable)
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
	b.WriteString(flowtable(devices, opts.Hardware))
	if opts.AfterPackets > 0 {
		fmt.Fprintf(&b, "add counter inet %s %s\n", tableName, offered)
	}
	fmt.Fprintf(&b, "add chain inet %s %s { type filter hook forward priority %d; policy accept; }\n", tableName, fastpath, last)
	fmt.Fprintf(&b, "add chain inet %s %s\n", tableName, offer)
	b.WriteString(rules(c.six, opts.AfterPackets))
	return b.String()
}

// noTable gives the commands that remove it, or nothing.
const noTable = "add table inet " + tableName + "\ndelete table inet " + tableName + "\n"

// flowtable gives the commands that add the flowtable with its devices.
func flowtable(devices []string, hardware bool) string {
	var b strings.Builder
	flags := ""
	if hardware {
		flags = "flags offload; "
	}
	add := func(list string) {
		fmt.Fprintf(&b, "add flowtable inet %s %s { hook ingress priority %d; %s%scounter; }\n", tableName, fastpath, last, flags, list)
	}
	if len(devices) == 0 {
		add("")
	}
	for chunk := range slices.Chunk(devices, devicesPerCommand) {
		add("devices = { \"" + strings.Join(chunk, `", "`) + "\" }; ")
	}
	return b.String()
}

// rules gives the commands that add those of both chains. What is cheap and what few packets have is asked first: half of all are
// answers, of which one direction is enough, since the kernel takes a connection as a whole; and short connections leave at the
// threshold. Of what another than connection tracking has translated, as IPVS does, the original direction is no established one.
func rules(six bool, afterPackets int) string {
	var b strings.Builder
	add := func(chain, rule string) { fmt.Fprintf(&b, "add rule inet %s %s %s\n", tableName, chain, rule) }
	threshold, counted := "", ""
	if afterPackets > 0 { // with such a rule the kernel begins to count the packets of new connections (nft_ct_get_init)
		threshold, counted = fmt.Sprintf("ct packets > %d ", afterPackets), "counter name "+offered+" "
	}
	add(fastpath, "ct direction original "+threshold+"ct status dnat ct state established goto "+offer)
	family := func(ip string, ports, addrs int) {
		// nft 1.0.6 takes the port only in a rule that asks for the protocol.
		add(offer, fmt.Sprintf("meta l4proto { tcp, udp } meta l4proto . ct original %s daddr . ct original proto-dst @%s %sflow add @%s",
			ip, sets[ports].name, counted, fastpath))
		add(offer, fmt.Sprintf("ct original %s daddr @%s meta l4proto { tcp, udp } meta l4proto . ct original proto-dst @%s %sflow add @%s",
			ip, sets[addrs].name, sets[nodePorts].name, counted, fastpath))
	}
	family("ip", ports4, addrs4)
	if six {
		family("ip6", ports6, addrs6)
	}
	return b.String()
}
