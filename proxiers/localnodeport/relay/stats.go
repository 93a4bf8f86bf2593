package relay

import "sync/atomic"

// Stats are counts since the Relay was made, but for Active.
type Stats struct {
	Accepted         uint64 // connections of clients
	Active           uint64 // connections open now, those that are being dialled included
	ToEndpoint       uint64 // bytes written to endpoints
	ToClient         uint64 // bytes written to clients
	DialFailures     uint64 // dials that failed
	Retries          uint64 // dials that followed a failed one
	NoEndpoint       uint64 // clients reset because Target.Pick had no endpoint (left)
	Resets           uint64 // connections that a reset or another error of one side ended
	DescriptorPauses uint64 // episodes in which accepting paused for lack of descriptors, or another error of accept4
	LimitPauses      uint64 // episodes in which accepting paused for ErrLimit
}

// counters are those of one loop. Only the loop writes.
type counters struct {
	accepted     counter
	bytes        [2]counter // by source
	dialFailures counter
	retries      counter
	noEndpoint   counter
	resets       counter
}

// counter has one writer, so that adding needs no locked instruction.
type counter struct{ n atomic.Uint64 }

func (c *counter) add(n uint64) { c.n.Store(c.n.Load() + n) }

// Stats reads the counters. It costs a few atomic loads for each loop.
func (r *Relay) Stats() Stats {
	s := Stats{
		Active:           uint64(max(r.active.Load(), 0)),
		DescriptorPauses: r.pauses[descriptorPause].count.Load(),
		LimitPauses:      r.pauses[limitPause].count.Load(),
	}
	for _, l := range r.loops {
		s.Accepted += l.accepted.n.Load()
		s.ToEndpoint += l.bytes[client].n.Load()
		s.ToClient += l.bytes[endpoint].n.Load()
		s.DialFailures += l.dialFailures.n.Load()
		s.Retries += l.retries.n.Load()
		s.NoEndpoint += l.noEndpoint.n.Load()
		s.Resets += l.resets.n.Load()
	}
	return s
}
