package ebpf

import (
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// Shortcut implements proxiers.Shortcutter.
func (p *proxier) Shortcut() proxiers.Shortcut {
	out := proxiers.Shortcut{Left: map[string]uint64{}}
	counts, err := p.shortcuts.counts()
	for c, n := range counts {
		if counter(c) < leftRanges {
			out.Taken += n
		} else if n > 0 {
			out.Left[counter(c).String()] = n
		}
	}
	p.shortcuts.mu.Lock()
	defer p.shortcuts.mu.Unlock()
	if out.Down = p.shortcuts.problem; out.Down == nil {
		out.Down = err
	}
	if p.shortcuts.book != nil {
		out.NoRoom = p.shortcuts.book.left
	}
	return out
}

// Way implements proxiers.Shortcutter.
func (p *proxier) Way(d plan.Decision, bound bool) string {
	const byRules = "by nftables, because "
	svc := d.Service
	if svc.Name.Protocol == plan.SCTP {
		return byRules + "BPF does not see sockets of SCTP"
	}
	if why, isLeft := whyLeft(svc, d.Frontend); isLeft {
		return byRules + map[counter]string{
			leftRanges: "the Service has source ranges", leftAffinity: "the Service has session affinity", leftVerdict: "there is nothing to forward to",
		}[why]
	}
	s := p.shortcuts
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.problem != nil:
		return byRules + "BPF is not at work: " + s.problem.Error()
	case s.book != nil && s.book.records[keyOf(svc)].full():
		return byRules + "the BPF maps are too small (ebpf.size)"
	case bound && d.SNAT:
		return "by socket, or by nftables if the socket is bound to its address, as its packets are masqueraded"
	}
	return "by socket: connect gives it the endpoint's address"
}
