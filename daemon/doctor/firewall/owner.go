package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"edgeway/daemon/doctor/nft"
	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// owner is a program that writes firewall rules. The name of a table or chain identifies its owner.
type owner string

const (
	docker    owner = "Docker"
	ufw       owner = "ufw"
	firewalld owner = "firewalld"
)

// dockerUser is the chain that Docker reserves for other programs' rules.
const dockerUser = "DOCKER-USER"

// prefix is a prefix of table or chain names that identifies their owner.
type prefix struct {
	text  string
	owner owner
}

var (
	chainOwners = []prefix{
		{"ufw-", ufw},
		{"ufw6-", ufw},
		{"DOCKER", docker},
		{"LIBVIRT_", "libvirt"},
		{"KUBE-", "Edgeway, kube-proxy or the kubelet"},
		{"NETAVARK", "Podman"},
		{"CNI-", "a CNI plugin"},
		{"cali-", "Calico"},
		{"f2b-", "fail2ban"},
	}
	tableOwners = []prefix{
		{"firewalld", firewalld},
		{"libvirt_", "libvirt"},
		{"docker-", docker},
		{"netavark", "Podman"},
		{"kube-proxy", "kube-proxy"},
		{"f2b-", "fail2ban"},
		{"crowdsec", "CrowdSec"},
	}
)

func ownerOf(name string, list []prefix) owner {
	for _, p := range list {
		if strings.HasPrefix(name, p.text) {
			return p.owner
		}
	}
	return ""
}

// owner returns the program that owns the chain or its table, or "" if the owner is unknown. An iptables chain's policy
// belongs to ufw if the chain jumps to ufw's chains, or else to Docker if the chain jumps to Docker's chains.
func (p ruleRef) owner() owner {
	if o := cmp.Or(ownerOf(p.chain.name, chainOwners), ownerOf(p.base.table.name, tableOwners)); o != "" {
		return o
	}
	for _, o := range []owner{ufw, docker} {
		if p.rule == nil && p.base.table.program != "" && slices.ContainsFunc(p.base.rules,
			func(r rule) bool { return ownerOf(r.target, chainOwners) == o }) {
			return o
		}
	}
	return ""
}

// String returns a description such as "Docker's policy drop of chain FORWARD (table filter of iptables)".
func (p ruleRef) String() string {
	whose := "the "
	if o := p.owner(); o != "" {
		whose = string(o) + "'s "
	}
	if p.rule == nil {
		return fmt.Sprintf("%spolicy drop of chain %s %s", whose, p.chain.name, p.base.table)
	}
	const most = 200
	text := strings.ToValidUTF8(p.rule.text[:min(len(p.rule.text), most)], "")
	return fmt.Sprintf("%srule '%s' in chain %s %s", whose, text, p.chain.name, p.base.table)
}

func (t *table) String() string {
	if t.program != "" {
		return fmt.Sprintf("(table %s of %s)", t.name, t.program)
	}
	return fmt.Sprintf("(%s table %s)", t.family, t.name)
}

// word matches a name that both a shell and nft read as one word and that is not a command-line option.
var word = regexp.MustCompile(`^([\w?][\w./-]*)?$`)

func (t *table) list() string {
	switch {
	case t.program != "":
		return fmt.Sprintf("%s-save -t %s", t.program, t.name)
	case t.name == "", !word.MatchString(t.name):
		return "nft list ruleset"
	}
	return fmt.Sprintf("nft list table %s %s", t.family, t.name)
}

// firewalldFix restores firewalld's default, which is to accept translated connections. With StrictForwardPorts=yes,
// firewalld (2.3.0 and newer) rejects connections that another program translated, regardless of firewalld's zones and
// policies.
const firewalldFix = "sed -i 's/^StrictForwardPorts=.*/StrictForwardPorts=no/' /etc/firewalld/firewalld.conf && " +
	"firewall-cmd --reload"

func (h *blocker) fix() string {
	t, base := h.at.base.table, h.at.base
	for _, name := range append([]string{t.name, base.name}, h.links...) {
		if !word.MatchString(name) {
			return t.list()
		}
	}
	match, iptables, port := "ct status dnat", "-m conntrack --ctstate DNAT", h.need.port
	if port != 0 {
		match, iptables = fmt.Sprintf("tcp dport %d", port), fmt.Sprintf("-p tcp --dport %d", port)
	}
	command := h.ownersFix(iptables)
	switch {
	case command != "":
		return command
	case t.program == "":
		return fmt.Sprintf("nft insert rule %s %s %s %s accept", t.family, t.name, base.name, match)
	case t.name == xtables.Filter:
		return fmt.Sprintf("%s -I %s %s -j ACCEPT", t.program, base.name, iptables)
	}
	return fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT", t.program, t.name, base.name, iptables)
}

// ownersFix returns a fix that uses the owner's own command or chain, or "" if the owner provides neither.
func (h *blocker) ownersFix(iptables string) string {
	t, port, forward := h.at.base.table, h.need.port, h.at.base.hook == "forward"
	switch o := h.at.owner(); {
	case o == ufw && port != 0:
		return fmt.Sprintf("ufw allow %d/tcp", port)
	case o == ufw && forward && len(h.links) > 0:
		return "ufw route allow out on " + strings.Join(h.links, " && ufw route allow out on ")
	case o == firewalld && port != 0:
		return fmt.Sprintf("firewall-cmd --permanent --add-port=%d/tcp && firewall-cmd --reload", port)
	case o == firewalld && strings.HasSuffix(h.at.chain.name, "_dnat"):
		return firewalldFix
	case o == docker && forward && t.chains[dockerUser] != nil:
		return fmt.Sprintf("%s -I %s %s -j ACCEPT", t.program, dockerUser, iptables)
	}
	return ""
}

// kubeServices is the iptables chain that leads to kube-proxy's rules or to the rules of the iptables backend.
const kubeServices = "KUBE-SERVICES"

// hasEdgewayRules reports whether a base chain contains a rule with the comment that the iptables backend adds to its
// rules.
func (t *table) hasEdgewayRules() bool {
	return slices.ContainsFunc(t.bases, func(c *chain) bool {
		return slices.ContainsFunc(c.rules, func(r rule) bool { return strings.Contains(r.text, `"edgeway: `) })
	})
}

// kubeProxyFix returns the command that removes kube-proxy's rules from a table, or "" if the table contains none.
func (t *table) kubeProxyFix() string {
	const comment = "  # stop kube-proxy on this host first, because it would write its rules again"
	if t.program == "" && t.name == "kube-proxy" && t.family != "inet" {
		return fmt.Sprintf("nft delete table %s %s", t.family, t.name) + comment
	}
	for _, c := range t.bases {
		if t.program != "" && slices.ContainsFunc(c.rules, func(r rule) bool {
			return r.target == kubeServices && !strings.Contains(r.text, `"edgeway: `)
		}) {
			return fmt.Sprintf("%[1]s-save | grep -v KUBE- | %[1]s-restore", t.program) + comment
		}
	}
	return ""
}

// Drop is a rule or policy that dropped a packet during a trace.
type Drop struct {
	Family, Table, Chain string
	// Handle and Rule are the rule's handle and text. Handle is 0 for the chain's policy.
	Handle uint64
	Rule   string
	// Reply reports whether the packet is a reply.
	Reply    bool
	Protocol plan.Protocol
	// Destination is the connection's original destination. Direct reports whether no rule has translated the
	// destination.
	Destination netip.AddrPort
	Direct      bool
}

// ruleRef returns a reference to the rule or policy that dropped the packet, in a new table that contains only the
// Drop's chain.
func (d Drop) ruleRef() ruleRef {
	t := newTable(d.Family, d.Table)
	if isIPTables(nft.Table{Family: d.Family, Name: d.Table}) {
		t.program = command(t.family, xtables.NFT)
	}
	c := t.chain(d.Chain)
	p := ruleRef{base: c, chain: c}
	if d.Handle != 0 {
		p.rule = &rule{text: d.Rule}
	}
	return p
}

// String describes the rule or policy and its owner.
func (d Drop) String() string { return d.ruleRef().String() }

// Fix returns a command that lets the dropped packets pass.
func (d Drop) Fix() string {
	t, proto := d.ruleRef().base.table, strings.ToLower(d.Protocol.String())
	if proxiers.IsOwnTable(d.Family, d.Table) {
		return fmt.Sprintf("edgeway explain host %s/%s  # the rule is Edgeway's own", d.Destination, proto)
	}
	if !word.MatchString(d.Table) || !word.MatchString(d.Chain) {
		return t.list()
	}
	match, iptables := "ct status dnat", "-m conntrack --ctstate DNAT"
	if d.Direct {
		ip, end := "ip", "d"
		if d.Destination.Addr().Is6() {
			ip = "ip6"
		}
		if d.Reply {
			end = "s"
		}
		match = fmt.Sprintf("%s %saddr %s %s %sport %d",
			ip, end, d.Destination.Addr(), proto, end, d.Destination.Port())
		iptables = fmt.Sprintf("-%s %s -p %s --%sport %d", end, d.Destination.Addr(), proto, end, d.Destination.Port())
	}
	switch {
	case t.program != "":
		return fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT", t.program, d.Table, d.Chain, iptables)
	case d.Handle != 0:
		return fmt.Sprintf("nft insert rule %s %s %s handle %d %s accept", d.Family, d.Table, d.Chain, d.Handle, match)
	}
	return fmt.Sprintf("nft add rule %s %s %s %s accept", d.Family, d.Table, d.Chain, match)
}
