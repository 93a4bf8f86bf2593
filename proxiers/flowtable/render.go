package flowtable

import (
	"fmt"
	"slices"
	"strings"

	"edgeway/proxiers"
)

const (
	// KEP-4963 specifies tableName, fastpath and the names of the port sets.
	tableName = proxiers.FlowtableTable
	fastpath  = "fastpath"
	// offerChain is the chain that offers opted-in Services' connections to the flowtable.
	offerChain = "offer"
	// hookPriority is the priority of both the chain and the flowtable. The package comment explains why the chain and
	// the flowtable run last. The highest known priorities in the forward hook are 10 (firewalld) and 50 (iptables'
	// security table).
	hookPriority = 1000
	// devicesPerCommand is the maximum number of devices in one nft command. Linux 6.1 rejects a command with 256
	// device names, although NFT_NETDEVICE_MAX is 256. Linux 7.2 accepts 256. A flowtable itself may contain more
	// devices.
	devicesPerCommand = 255
	// elementsPerCommand is the maximum number of set elements in one nft command. The maximum keeps each netlink
	// message below the socket's size limit.
	elementsPerCommand = 1000
)

// tableCommands returns the commands that replace the nftables table. The commands form one transaction, so the
// nftables table is never missing.
func tableCommands(c *contents, devices []string) string {
	var b strings.Builder
	b.WriteString(removeCommands)
	if c.idle() {
		return b.String()
	}
	fmt.Fprintf(&b, "add table inet %s\n", tableName)
	for i, set := range sets {
		if c.ipv6 || i != ports6 && i != addrs6 {
			fmt.Fprintf(&b, "add set inet %s %s { type %s; }\n", tableName, set.name, set.typ)
		}
	}
	b.WriteString(c.elements())
	b.WriteString(flowtable(devices))
	fmt.Fprintf(&b, "add chain inet %s %s { type filter hook forward priority %d; policy accept; }\n", tableName,
		fastpath, hookPriority)
	fmt.Fprintf(&b, "add chain inet %s %s\n", tableName, offerChain)
	b.WriteString(ruleCommands(c.ipv6))
	return b.String()
}

// removeCommands holds the commands that remove the nftables table if it exists. The first command creates the nftables
// table, because deleting a missing table is an error.
const removeCommands = "add table inet " + tableName + "\ndelete table inet " + tableName + "\n"

func flowtable(devices []string) string {
	var b strings.Builder
	add := func(list string) {
		fmt.Fprintf(&b, "add flowtable inet %s %s { hook ingress priority %d; %scounter; }\n", tableName, fastpath,
			hookPriority, list)
	}
	if len(devices) == 0 {
		add("")
	}
	for chunk := range slices.Chunk(devices, devicesPerCommand) {
		add("devices = { \"" + strings.Join(chunk, `", "`) + "\" }; ")
	}
	return b.String()
}

// ruleCommands returns the commands that add the rules to both chains. The match on the direction comes first, because
// it excludes the replies, which are half of all packets. The rules match only one direction of a connection, because
// the kernel offloads both directions together. If IPVS translates a connection, its packets in the original direction
// never have the connection-tracking state "established".
func ruleCommands(six bool) string {
	var b strings.Builder
	add := func(chain, rule string) { fmt.Fprintf(&b, "add rule inet %s %s %s\n", tableName, chain, rule) }
	add(fastpath, "ct direction original ct status dnat ct state established goto "+offerChain)
	family := func(ip string, ports, addrs int) {
		// nft 1.0.6 accepts "ct original proto-dst" only in a rule that matches the protocol.
		add(offerChain, fmt.Sprintf("meta l4proto { tcp, udp } meta l4proto . ct original %s daddr . ct original proto-dst @%s flow add @%s",
			ip, sets[ports].name, fastpath))
		add(offerChain, fmt.Sprintf("ct original %s daddr @%s meta l4proto { tcp, udp } meta l4proto . ct original proto-dst @%s flow add @%s",
			ip, sets[addrs].name, sets[nodePorts].name, fastpath))
	}
	family("ip", ports4, addrs4)
	if six {
		family("ip6", ports6, addrs6)
	}
	return b.String()
}
