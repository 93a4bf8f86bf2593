package firewall

import "edgeway/proxiers/plan"

// The priorities from which on packets belong to connections, and have been translated.
const (
	beforeTracking, translates = -200, -100 // priorities at prerouting and output
	sourceTranslates           = 100        // at input and postrouting
)

// packet is one that a base chain sees.
type packet struct {
	family   plan.Family
	protocol plan.Protocol
	of       [fields]value
}

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
	in, out, own := w.in, w.out, w.in == ""
	if own && w.toHost {
		in, out = loopback, loopback
	}
	return append(hooks(false, in, out, own, w.toHost), hooks(true, out, in, w.toHost, own)...)
}

// hooks are those of a packet that comes and goes by these links; the host itself may send and receive it.
func hooks(reply bool, in, out string, fromHost, toHost bool) []step {
	first := []step{{"prerouting", reply, in, ""}}
	if fromHost {
		first = []step{{"output", reply, "", out}, {"postrouting", reply, "", out}}
	}
	switch {
	case toHost:
		return append(first, step{"input", reply, in, ""})
	case fromHost:
		return first
	}
	return append(first, step{"forward", reply, in, out}, step{"postrouting", reply, "", out})
}

// translated says whether a packet has been sent to the endpoint when a base chain with this priority sees it.
func (w *way) translated(s step, priority int) bool {
	return w.endpoint.IsValid() && (!s.early() || s.reply || priority > translates)
}

// masqueraded says whether a packet has another source by then.
func (w *way) masqueraded(s step, priority int) bool {
	return w.snat && priority >= sourceTranslates && (s.hook == "input" || s.hook == "postrouting")
}

// marks is what is known of packet marks: the bits that nobody else sets, and the one for masquerade, which a first
// packet has from its translation to its masquerade.
type marks struct{ known, masquerade uint64 }

// packet gives the packet that a base chain with this priority sees at a step.
func (w *way) packet(s step, priority int, m marks) packet {
	p := packet{family: w.family, protocol: w.service.Protocol}
	served, mark := w.front, value{kind: number, known: m.known}
	status, direction := value{kind: number, known: statusDNAT}, numberOf(0)
	state := value{kind: number, bits: stateNew, known: ^uint64(stateSNAT)}
	if w.translated(s, priority) {
		served, status.bits = w.endpoint, statusDNAT
		state.bits |= stateDNAT
		if w.snat && !s.reply && !w.masqueraded(s, priority) {
			mark.bits = m.masquerade & m.known
		}
	}
	far, near := addressOf(w.client), addressOf(served.Addr())
	if w.masqueraded(s, priority) {
		far = value{}
	}
	port, other, flags := numberOf(uint64(served.Port())), value{kind: ephemeral}, numberOf(tcpSYN)
	p.of[srcField], p.of[dstField], p.of[sportField], p.of[dportField] = far, near, other, port
	if s.reply {
		p.of[srcField], p.of[dstField], p.of[sportField], p.of[dportField] = near, far, port, other
		state.bits ^= stateNew | stateEstablished
		direction, flags = numberOf(1), value{kind: number, bits: tcpACK, known: tcpACK}
	}
	p.of[inField], p.of[outField] = linkOf(s.iif), linkOf(s.oif)
	if s.hook == "output" && !s.reply && priority <= translates {
		p.of[outField] = value{} // the kernel looks its route up again when it has translated
	}
	if !s.early() || priority > beforeTracking { // otherwise the connection is not known yet
		p.of[stateField], p.of[statusField], p.of[directionField] = state, status, direction
		p.of[frontAddrField], p.of[frontPortField] = addressOf(w.front.Addr()), numberOf(uint64(w.front.Port()))
	}
	p.of[absentField], p.of[tcpFlagsField] = value{kind: absent}, flags
	p.of[markField], p.of[dstTypeField], p.of[packetTypeField] = mark, w.typeOf(s), numberOf(0)
	p.of[protocolField], p.of[familyField] = numberOf(uint64(p.protocol)), numberOf(uint64(p.family))
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
