package iptables

import (
	"context"
	"slices"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// intactTimeout and countTimeout bound a look at the kernel's state.
const (
	intactTimeout = 30 * time.Second
	countTimeout  = 10 * time.Second
)

// loopbackChains count what is rejected on loopback.
var loopbackChains = []struct {
	proto plan.Protocol
	name  string
}{{plan.UDP, chainLoopbackUDP}, {plan.SCTP, chainLoopbackSCTP}}

// RestoreReports implements proxiers.RestoreReporter.
func (p *proxier) RestoreReports() []proxiers.RestoreReport {
	var out []proxiers.RestoreReport
	for _, f := range p.families {
		f.mu.Lock()
		r := proxiers.RestoreReport{Family: f.Family, Failures: f.failures, PartialFailures: f.partialFailures}
		for _, table := range tables {
			r.Tables = append(r.Tables, proxiers.RestoredTable{Name: table, Total: f.wrote[table].rules, Last: f.last[table]})
		}
		f.mu.Unlock()
		r.Locks, r.LockWait = f.tools.lockWait()
		out = append(out, r)
	}
	return out
}

// LoopbackRejected implements proxiers.LoopbackRejecter.
func (p *proxier) LoopbackRejected() ([]proxiers.Rejected, error) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	var out []proxiers.Rejected
	for _, f := range p.families {
		for _, c := range loopbackChains {
			n, err := f.tools.chainPackets(ctx, tableFilter, c.name)
			if err != nil {
				return nil, err
			}
			f.mu.Lock()
			n += f.rejected[c.proto]
			f.mu.Unlock()
			out = append(out, proxiers.Rejected{Family: f.Family, Protocol: c.proto, Packets: n})
		}
	}
	return out, nil
}

// loopbackCounts reads what the chains on loopback have counted, as far as there are any.
func (f *family) loopbackCounts(ctx context.Context, filter *saved) (map[plan.Protocol]uint64, error) {
	counts := map[plan.Protocol]uint64{}
	for _, c := range loopbackChains {
		if !slices.Contains(filter.chains, c.name) {
			continue
		}
		var err error
		if counts[c.proto], err = f.tools.chainPackets(ctx, tableFilter, c.name); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// keep adds to what LoopbackRejected gives beside what the kernel counts.
func (f *family) keep(counts map[plan.Protocol]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for proto, n := range counts {
		f.rejected[proto] += n
	}
}
