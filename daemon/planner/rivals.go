package planner

import (
	"slices"

	"edgeway/daemon/source"
)

// maxRivals is the number of rivals that are remembered for each claim. 300 Services with the same 15,000 claims would
// otherwise need 4.5 million entries (an object of 6 kB makes 15,000 claims). When the list runs dry, Planner.recount
// fills it from the snapshot.
const maxRivals = 16

// rivals are the bids that lost a claim. best holds the first of them by precedence, in this order; more counts the
// others, which all come after those in best.
type rivals struct {
	best []bid
	more int
}

// add adds a bid. A bid that follows those in best is not added to it while there are others: one of them may precede it.
func (r *rivals) add(b bid, limit int) {
	i, _ := slices.BinarySearchFunc(r.best, b, compareBids)
	if i == len(r.best) && (r.more > 0 || i >= limit) {
		r.more++
		return
	}
	r.best = slices.Insert(r.best, i, b)
	if len(r.best) > limit {
		r.best = slices.Delete(r.best, limit, len(r.best))
		r.more++
	}
}

// remove removes a bid that was added. r may be nil: then there is none.
func (r *rivals) remove(s *source.Service) {
	if r == nil {
		return
	}
	if i := slices.IndexFunc(r.best, func(b bid) bool { return b.service == s }); i >= 0 {
		r.best = slices.Delete(r.best, i, i+1)
	} else if r.more > 0 {
		r.more--
	}
}

func (r *rivals) empty() bool { return r == nil || len(r.best) == 0 && r.more == 0 }
