package firewall

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"edgeway/daemon/doctor/nft"
	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// owner is the program that has made rules, as it is told by the names of its tables and chains.
type owner string

// The owners that have a command of their own to mend what they drop. Of others only the name is told.
const (
	docker    owner = "Docker"
	ufw       owner = "ufw"
	firewalld owner = "firewalld"
)

// beginning is that of the names that a program gives.
type beginning struct {
	prefix string
	owner  owner
}

var (
	chainOwners = []beginning{
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
	tableOwners = []beginning{
		{"firewalld", firewalld},
		{"libvirt_", "libvirt"},
		{"docker-", docker},
		{"netavark", "Podman"},
		{"kube-proxy", "kube-proxy"},
		{"f2b-", "fail2ban"},
		{"crowdsec", "CrowdSec"},
	}
)

func ownerOf(name string, list []beginning) owner {
	for _, b := range list {
		if strings.HasPrefix(name, b.prefix) {
			return b.owner
		}
	}
	return ""
}

// owner tells whose the place is: the chain's, the table's, or that of who sets the policy of a chain that it shares
// with others: ufw, or else Docker.
func (p place) owner() owner {
	if o := ownerOf(p.chain.name, chainOwners); o != "" {
		return o
	}
	if o := ownerOf(p.base.table.name, tableOwners); o != "" || p.rule != nil || p.base.table.program == "" {
		return o
	}
	leads := map[owner]bool{}
	for i := range p.base.rules {
		leads[ownerOf(p.base.rules[i].to, chainOwners)] = true
	}
	for _, o := range []owner{ufw, docker} {
		if leads[o] {
			return o
		}
	}
	return ""
}

// describe asks nft for the text of a rule that is not known.
func (p place) describe(ctx context.Context) {
	if t := p.base.table; p.rule != nil && p.rule.text == "" {
		p.rule.text = nft.Rule(ctx, t.family, t.name, p.chain.name, p.rule.handle)
	}
}

// String names the place, as in "Docker's policy DROP of chain FORWARD (ip table filter)".
func (p place) String() string {
	whose := "the "
	if o := p.owner(); o != "" {
		whose = string(o) + "'s "
	}
	t := p.base.table
	where := fmt.Sprintf("(%s table %s)", t.family, t.name)
	if t.program != "" {
		where = fmt.Sprintf("(table %s of %s)", t.name, t.program)
	}
	if p.rule == nil {
		return fmt.Sprintf("%spolicy drop of chain %s %s", whose, p.chain.name, where)
	}
	return fmt.Sprintf("%srule '%s' in chain %s %s", whose,
		cmp.Or(p.rule.text, fmt.Sprintf("handle %d", p.rule.handle)), p.chain.name, where)
}

// word is a name that neither a shell nor nft nor the options of a program take for something else.
var word = regexp.MustCompile(`^([\w?][\w./-]*)?$`)

// list is the command that shows the rules, for where no other one can be given.
func (t *table) list() string {
	switch {
	case t.program != "":
		return fmt.Sprintf("%s-save -t %s", t.program, t.name)
	case t.name == "", !word.MatchString(t.name):
		return "nft list ruleset"
	}
	return fmt.Sprintf("nft list table %s %s", t.family, t.name)
}

// mend gives the command after which the packets of a way pass the place.
func (p place) mend(w *way, s step) string {
	for _, name := range []string{p.base.table.name, p.base.name, w.in, w.out} {
		if !word.MatchString(name) {
			return p.base.table.list()
		}
	}
	if own := p.ownersMend(w, s); own != "" {
		return own
	}
	t := p.base.table
	match := w.match(t.program, s, w.translated(s, p.base.priority) &&
		!(s.early() && p.base.priority <= beforeTracking))
	switch {
	case t.program == "":
		return fmt.Sprintf("nft insert rule %s %s %s %s accept", t.family, t.name, p.base.name, match)
	case t.name == xtables.Filter:
		return fmt.Sprintf("%s -I %s %s -j ACCEPT", t.program, p.base.name, match)
	}
	return fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT", t.program, t.name, p.base.name, match)
}

// ownersMend is the command of the program whose place it is; empty: there is none.
func (p place) ownersMend(w *way, s step) string {
	hook := p.base.hook
	switch p.owner() {
	case ufw:
		if !s.reply {
			return ufwMend(w, hook)
		}
	case firewalld:
		if !w.endpoint.IsValid() {
			return fmt.Sprintf("firewall-cmd --permanent --add-port=%d/%s && firewall-cmd --reload", w.front.Port(),
				lower(w.service.Protocol))
		}
		if strings.HasSuffix(p.chain.name, "_dnat") {
			return firewalldMend
		}
	case docker:
		if t := p.base.table; hook == "forward" && t.program != "" && t.chains["DOCKER-USER"] != nil {
			return t.program + " -I DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT"
		}
	}
	return ""
}

// firewalldMend lets translated connections pass, as firewalld does by default; before 2.3.0 it always does. With
// StrictForwardPorts=yes it rejects those that it has not translated itself, before any zone or policy is asked.
const firewalldMend = "sed -i 's/^StrictForwardPorts=.*/StrictForwardPorts=no/' /etc/firewalld/firewalld.conf && firewall-cmd --reload"

func ufwMend(w *way, hook string) string {
	on := func(which, link string) string {
		if link == "" || link == anyLink {
			return ""
		}
		return " " + which + " on " + link
	}
	served, command := w.front, "ufw allow"+cmp.Or(on("in", w.in), " in")
	switch hook {
	case "forward":
		return "ufw route allow" + on("in", w.in) + on("out", w.out)
	case "output":
		command = "ufw allow" + cmp.Or(on("out", w.out), " out")
	}
	if w.endpoint.IsValid() {
		served = w.endpoint
	}
	return fmt.Sprintf("%s to %s port %d proto %s", command, served.Addr(), served.Port(), lower(w.service.Protocol))
}

// match is for the way's packets at a step, in the words of a program or else of nft: for those of all Services where
// they can be told.
func (w *way) match(program string, s step, translated bool) string {
	ip, end := "ip", "d"
	if w.family == plan.IPv6 {
		ip = "ip6"
	}
	if s.reply {
		end = "s"
	}
	proto := lower(w.service.Protocol)
	switch {
	case translated && program == "":
		return "ct status dnat"
	case translated:
		return "-m conntrack --ctstate DNAT"
	case program == "":
		return fmt.Sprintf("%s %saddr %s %s %sport %d", ip, end, w.front.Addr(), proto, end, w.front.Port())
	}
	return fmt.Sprintf("-%s %s -p %s --%sport %d", end, w.front.Addr(), proto, end, w.front.Port())
}

func lower(p plan.Protocol) string { return strings.ToLower(p.String()) }

// Drop is a place where a packet was seen to be dropped.
type Drop struct {
	Family, Table, Chain string
	// Handle is the rule's and Rule its text; 0: the chain's policy.
	Handle uint64
	Rule   string
	// Reply says that it was an answer.
	Reply    bool
	Protocol plan.Protocol
	// To is the destination, and Direct says that it is not translated.
	To     netip.AddrPort
	Direct bool
}

// place is what is known of it without the chains around it.
func (d Drop) place() place {
	t := newTable(d.Family, d.Table)
	if ofIPTables(t) {
		t.program = command(t.family, xtables.NFT)
	}
	c := &chain{table: t, name: d.Chain}
	p := place{base: c, chain: c}
	if d.Handle != 0 {
		p.rule = &rule{text: d.Rule}
	}
	return p
}

// String names the place, and whose it is.
func (d Drop) String() string { return d.place().String() }

// Fix gives the command after which packets like this one pass the place.
func (d Drop) Fix() string {
	if proxiers.OwnTable(d.Family, d.Table) {
		return fmt.Sprintf("edgeway explain host %s/%s  # the rule is Edgeway's own", d.To, lower(d.Protocol))
	}
	if !word.MatchString(d.Table) || !word.MatchString(d.Chain) {
		return d.place().base.table.list()
	}
	w := way{family: plan.FamilyOf(d.To.Addr()), service: plan.ServicePortName{Protocol: d.Protocol}, front: d.To}
	t := d.place().base.table
	match := w.match(t.program, step{reply: d.Reply}, !d.Direct)
	switch {
	case t.program != "":
		return fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT", t.program, d.Table, d.Chain, match)
	case d.Handle != 0:
		return fmt.Sprintf("nft insert rule %s %s %s handle %d %s accept", d.Family, d.Table, d.Chain, d.Handle, match)
	}
	return fmt.Sprintf("nft add rule %s %s %s %s accept", d.Family, d.Table, d.Chain, match)
}
