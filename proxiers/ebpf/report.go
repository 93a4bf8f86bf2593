package ebpf

import (
	"fmt"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// shortcutFault is the ID of faults that concern the shortcut.
const shortcutFault = "shortcut"

func (p *proxier) Faults() []fault.Fault {
	_, err := p.shortcuts.counts()
	p.shortcuts.mu.Lock()
	defer p.shortcuts.mu.Unlock()
	switch s := p.shortcuts; {
	case s.problem != nil:
		err = s.problem
	case err != nil:
	case s.tcErr != nil:
		err = fmt.Errorf("connections from other hosts: %w", s.tcErr)
	default:
		return nil
	}
	return []fault.Fault{{
		ID: shortcutFault, Severity: fault.Warning,
		Message: "Connections use the nftables rules instead of the BPF programs: " + err.Error(),
	}}
}

// Summary returns the share and number of connections that used the shortcut, and explains why other connections did
// not.
func (p *proxier) Summary() (lines []string) {
	taken, left := uint64(0), uint64(0)
	counts, _ := p.shortcuts.counts() // Faults reports the error
	for c, n := range counts {
		if counter(c) < leftRanges {
			taken += n
		} else if n > 0 {
			left += n
			lines = append(lines, fmt.Sprintf("connections through the nftables rules (%s): %d", counter(c), n))
		}
	}
	slices.Sort(lines)
	share := "none"
	if taken+left > 0 {
		share = fmt.Sprintf("%d %% (%d)", taken*100/(taken+left), taken)
	}
	lines = slices.Insert(lines, 0, fmt.Sprintf("%s of the connections to Services used the BPF programs", share))
	p.shortcuts.mu.Lock()
	defer p.shortcuts.mu.Unlock()
	if b := p.shortcuts.mapState; b != nil && b.overflow > 0 {
		lines = append(lines, fmt.Sprintf("%d ServicePorts do not fit into the BPF maps", b.overflow))
	}
	return lines
}

func (p *proxier) Explain(d plan.Decision, bound bool) (proxiers.Path, error) {
	return proxiers.Path{Shortcut: p.explainPath(d, bound)}, nil
}

// explainPath explains whether nftables or a BPF program translates a connection, and why.
func (p *proxier) explainPath(d plan.Decision, bound bool) string {
	const byRules = "by nftables, because "
	svc := d.Service
	if svc.Name.Protocol == plan.SCTP {
		return byRules + "the BPF programs do not serve SCTP"
	}
	if why, isLeft := bypassReason(svc, d.Frontend, d.Origin); isLeft {
		return byRules + map[counter]string{
			leftRanges: "the Service has source ranges", leftAffinity: "the Service has session affinity",
			leftVerdict: "the Service has no usable endpoint",
		}[why]
	}
	s := p.shortcuts
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.problem != nil:
		return byRules + "the BPF programs are not in use: " + s.problem.Error()
	case s.mapState != nil && s.mapState.records[keyOf(svc)].overflows():
		return byRules + "the BPF maps have no space for the Service (see ebpf.size)"
	case d.Origin != plan.FromHost:
		if why := s.tcBypassReason(d); why != "" {
			return byRules + why
		}
		return "by tc: the tc program adds a connection-tracking entry that contains the endpoint" +
			s.describeCount(svc)
	case bound && d.SNAT:
		return "by nftables if the socket is bound to a source address, because the connection needs masquerading; " +
			"otherwise by socket" +
			s.describeCount(svc)
	}
	return "by socket: a BPF program replaces the Service's address with the endpoint's address" + s.describeCount(svc)
}

// tcBypassReason explains why the tc program does not translate a connection, or returns "" if it does.
func (s *shortcuts) tcBypassReason(d plan.Decision) string {
	switch {
	case !s.tc:
		return "ebpf.tc is false"
	case d.Service.Name.Protocol == plan.UDP:
		return "the tc program serves TCP only"
	case d.SNAT && s.config.Flags&markRules != 0:
		return "a routing rule matches a packet mark, " +
			"so the tc program cannot determine the address for masquerading"
	case s.tcErr != nil:
		return "the tc program is not in use: " + s.tcErr.Error()
	}
	return ""
}

// describeCount describes how many of a ServicePort's connections used the shortcut, or returns "" if the number is
// 0 or unknown.
func (s *shortcuts) describeCount(svc *plan.ServicePort) string {
	if s.mapState == nil || s.objects == nil {
		return ""
	}
	number, sum := s.mapState.records[keyOf(svc)].service, uint64(0)
	err := s.tables.eachTaken(func(key uint32, n uint64) {
		if takenService(key) == number {
			sum += n
		}
	})
	if err != nil || sum == 0 {
		return ""
	}
	return fmt.Sprintf("; connections to the Service port that used the shortcut: %d", sum)
}

// logOverflow logs the ServicePorts that the maps have no space for.
func (s *shortcuts) logOverflow(st *step) {
	const named = 10
	if len(st.overflow) == 0 {
		return
	}
	var names []string
	for _, svc := range st.overflow[:min(named, len(st.overflow))] {
		names = append(names, svc.Name.String())
	}
	s.logger.Warn("BPF maps full, using nftables for other Services",
		"fix", "ebpf.size = \"large\"", "services", len(st.overflow), "first", names)
}
