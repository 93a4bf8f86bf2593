package firewall

import (
	"net/netip"

	"edgeway/proxiers/plan"
)

// The priorities from which on packets belong to connections, and have been translated.
const (
	beforeTracking, translates = -200, -100 // priorities at prerouting and output
	sourceTranslates           = 100        // at input and postrouting
)

// packet is one that a base chain sees.
type packet struct {
	family   plan.Family
	protocol plan.Protocol
	src, dst value
	// sport and dport are its ports.
	sport, dport value
	iif, oif     value
	// state, status and direction are the connection's. untracked says that it is not known yet.
	state, status, direction value
	untracked                bool
	dstType, tcpFlags, mark  value
	// front is the destination before it was translated.
	front netip.AddrPort
}

func (p *packet) is(f plan.Family) bool { return p.family == f }

// step is a hook that a packet passes.
type step struct {
	hook string
	// reply says that it is an answer of the endpoint.
	reply    bool
	iif, oif string
}

// early says that at the hook packets are found to belong to a connection, and are translated.
func (s step) early() bool { return s.hook == "prerouting" || s.hook == "output" }

const loopback = "lo"

// steps gives the hooks that the first packet of a connection and the answer to it pass, in this order.
func (w *way) steps() []step {
	switch {
	case w.in == "" && w.toHost:
		return []step{
			{"output", false, "", loopback},
			{"postrouting", false, "", loopback},
			{"input", false, loopback, ""},
			{"output", true, "", loopback},
			{"postrouting", true, "", loopback},
			{"input", true, loopback, ""},
		}
	case w.in == "":
		return []step{
			{"output", false, "", w.out},
			{"postrouting", false, "", w.out},
			{"prerouting", true, w.out, ""},
			{"input", true, w.out, ""},
		}
	case w.toHost:
		return []step{
			{"prerouting", false, w.in, ""},
			{"input", false, w.in, ""},
			{"output", true, "", w.in},
			{"postrouting", true, "", w.in},
		}
	}
	return []step{
		{"prerouting", false, w.in, ""},
		{"forward", false, w.in, w.out},
		{"postrouting", false, "", w.out},
		{"prerouting", true, w.out, ""},
		{"forward", true, w.out, w.in},
		{"postrouting", true, "", w.in},
	}
}

// translated says whether a packet has been sent to the endpoint when a base chain with this priority sees it.
func (w *way) translated(s step, priority int) bool {
	return w.endpoint.IsValid() && (!s.early() || s.reply || priority > translates)
}

// masqueraded says whether a packet has another source by then.
func (w *way) masqueraded(s step, priority int) bool {
	return w.snat && priority >= sourceTranslates && (s.hook == "input" || s.hook == "postrouting")
}

// marks is what is known of packet marks: the bits that nobody else sets, and the one for masquerade, which a first packet
// has from its translation to its masquerade.
type marks struct{ known, masquerade uint64 }

// packet gives the packet that a base chain with this priority sees at a step.
func (w *way) packet(s step, priority int, m marks) packet {
	p := packet{
		family: w.family, protocol: w.service.Protocol, front: w.front, iif: linkOf(s.iif), oif: linkOf(s.oif),
		status: value{kind: number, known: statusDNAT}, mark: value{kind: number, known: m.known},
	}
	served := w.front
	if w.translated(s, priority) {
		served, p.status.bits = w.endpoint, statusDNAT
		if w.snat && !s.reply && !w.masqueraded(s, priority) {
			p.mark.bits = m.masquerade & m.known
		}
	}
	far, near := addressOf(w.client), addressOf(served.Addr())
	if w.masqueraded(s, priority) {
		far = value{}
	}
	port := numberOf(uint64(served.Port()))
	p.src, p.dst, p.sport, p.dport = far, near, value{kind: ephemeral}, port
	p.state, p.direction = numberOf(stateNew), numberOf(0)
	p.tcpFlags = numberOf(tcpSYN)
	if s.reply {
		p.src, p.dst, p.sport, p.dport = near, far, port, value{kind: ephemeral}
		p.state, p.direction = numberOf(stateEstablished), numberOf(1)
		p.tcpFlags = value{kind: number, bits: tcpACK, known: tcpACK}
	}
	p.dstType = w.typeOf(s)
	if s.hook == "output" && !s.reply && priority <= translates {
		p.oif = value{} // the kernel looks its route up again when it has translated
	}
	if p.untracked = s.early() && priority <= beforeTracking; p.untracked {
		p.state, p.status, p.direction = value{}, value{}, value{}
	}
	return p
}

func linkOf(s string) value {
	if s == anyLink {
		return value{}
	}
	return nameOf(s) // "" at output and input, as in the kernel (nft_meta_store_ifname)
}

// typeOf says whose the destination is.
func (w *way) typeOf(s step) value {
	switch {
	case s.hook == "forward":
		return numberOf(typeUnicast)
	case s.hook == "input", s.reply && w.in == "", w.toHost && !s.reply && s.hook != "prerouting" && s.hook != "output":
		return numberOf(typeLocal)
	}
	return value{}
}
