package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

const (
	// patience is how many syncs in a row may fail, refusals apart, until the biggest Services are suspected.
	patience = 3
	// heavyFrom is the weight from which a Service can be suspected.
	heavyFrom = 1000
	// heavyTries bounds one search. Each try may take as long as a sync.
	heavyTries = 12
	// heavyLogged is how many Services one search names in the log.
	heavyLogged = 10

	heavyFirst = time.Minute
	heavyCap   = time.Hour
)

// weight is about the number of elements, or of rules, that a ServicePort takes in the kernel.
func weight(svc *plan.ServicePort) int {
	endpoints := len(svc.Pools[plan.ClusterPool]) + len(svc.Pools[plan.LocalPool])
	n := endpoints
	for i := range svc.Frontends {
		n += 1 + endpoints + len(svc.Frontends[i].AllowFrom)
	}
	return n
}

// serviceKey names a Service: its ports come and go together.
type serviceKey struct{ namespace, name string }

func serviceOf(svc *plan.ServicePort) serviceKey {
	return serviceKey{svc.Name.Namespace, svc.Name.Name}
}

// heavy is a Service with the sum of the weights of its ports.
type heavy struct {
	serviceKey
	first  *plan.ServicePort
	weight int
}

// byWeight gives the Services of a plan, the lightest first.
func byWeight(p *plan.Plan) []heavy {
	index := map[serviceKey]int{}
	var list []heavy
	for _, svc := range p.Services {
		i, ok := index[serviceOf(svc)]
		if !ok {
			i = len(list)
			index[serviceOf(svc)] = i
			list = append(list, heavy{serviceKey: serviceOf(svc), first: svc})
		}
		list[i].weight += weight(svc)
	}
	slices.SortStableFunc(list, func(a, b heavy) int { return a.weight - b.weight })
	return list
}

// heldBack are Services that are left out because of their size: with them the sync failed again and again, though
// nothing was refused. They are tried again from time to time, all at once.
type heldBack struct {
	services map[serviceKey]*held
	backoff  backoff
	// at is when they are tried again; zero: there are none. trying says that this is being done.
	at     time.Time
	trying bool
}

// held is one of them. Its weight is the one it had when it was left out.
type held struct {
	heavy
	since time.Time
	err   error
}

// hold leaves out Services in addition to those that are left out already.
func (h *heldBack) hold(list []heavy, err error) {
	now := time.Now()
	if h.backoff.first == 0 {
		h.backoff = backoff{first: heavyFirst, limit: heavyCap}
	}
	before := h.services
	h.services = make(map[serviceKey]*held, len(list))
	for _, s := range list {
		since := now
		if old := before[s.serviceKey]; old != nil {
			since = old.since
		}
		h.services[s.serviceKey] = &held{s, since, err}
	}
	h.at, h.trying = now.Add(h.backoff.wait()), false
}

// accepted ends a try that succeeded.
func (h *heldBack) accepted() (n int) {
	if h.trying {
		n = len(h.services)
		*h = heldBack{}
	}
	return n
}

// filter gives p without those that are left out. One that is gone, or has got half as small, is forgotten.
func (h *heldBack) filter(p *plan.Plan) *plan.Plan {
	if len(h.services) == 0 || h.trying {
		return p
	}
	now := make(map[serviceKey]int, len(h.services))
	for _, svc := range p.Services {
		if h.services[serviceOf(svc)] != nil {
			now[serviceOf(svc)] += weight(svc)
		}
	}
	for key, s := range h.services {
		if 2*now[key] < s.weight {
			delete(h.services, key)
		}
	}
	if len(h.services) == 0 {
		*h = heldBack{}
		return p
	}
	return replace(p, func(svc *plan.ServicePort) *plan.ServicePort {
		if h.services[serviceOf(svc)] != nil {
			return nil
		}
		return svc
	})
}

// list tells of them, one for each Service.
func (h *heldBack) list() (out []Quarantined) {
	for _, s := range h.services {
		out = append(out, Quarantined{Name: s.first.Name, Family: s.first.Family, Since: s.since, Err: fmt.Sprintf(
			"all ports of the Service, %d elements, as with it the sync fails: %v. Make the Service smaller (ports, addresses, endpoints), or give edgeway more memory; the next try is at %s",
			s.weight, s.err, h.at.Format(time.TimeOnly))})
	}
	return out
}

// tooMuch says that the failure of the backend's sync may come from the size of what it has to write.
func (p *Pipeline) tooMuch(failure error) bool {
	return failure != nil && !errors.Is(failure, proxiers.ErrRefused) &&
		(p.held.trying || (p.backend.status.Attempts+1)%patience == 0)
}

// lighten answers a failure that comes again and again, though nothing was refused: memory that is not enough, a
// program that was killed, or that does not end in time. It puts the lighter Services in force, as many as
// succeed, and leaves out the others. If even those that weigh next to nothing fail, no size is to blame.
func (p *Pipeline) lighten(ctx context.Context, failure error) error {
	all := p.quarantine.filter(p.plan)
	list := byWeight(all)
	s := &heavySearch{p: p, all: all, list: list, sums: make([]int, len(list)+1), good: -1, bad: len(list)}
	for i := range list {
		s.sums[i+1] = s.sums[i] + list[i].weight
	}
	s.floor = slices.IndexFunc(list, func(h heavy) bool { return h.weight >= heavyFrom })
	p.held.trying = false
	if s.floor < 0 {
		return failure
	}
	p.opts.Logger.Warn("syncs fail without a refusal, trying without the biggest Services", "error", failure)
	refusal, failure := s.run(ctx, failure)
	if s.good < 0 || ctx.Err() != nil {
		p.retarget()
		return failure
	}
	p.held.hold(list[s.good:], failure)
	for i, h := range list[s.good:] {
		if i == heavyLogged {
			p.opts.Logger.Error("more Services left out because of their size", "services", len(list)-s.good-i)
			break
		}
		p.opts.Logger.Error("Service left out because of its size", "message_id", messageid.ServiceTooBig,
			"service", h.namespace+"/"+h.name, "elements", h.weight, "error", failure)
	}
	p.retarget()
	if refusal != nil {
		return refusal
	}
	_, err := p.apply(ctx, p.backend, p.target)
	return err
}

// heavySearch looks for how many Services, the lightest first, can be put in force.
type heavySearch struct {
	p    *Pipeline
	all  *plan.Plan
	list []heavy
	// sums are the weights of the first n.
	sums []int
	// floor is the first that can be suspected. good of them succeeded (-1: none yet), bad of them failed.
	floor, good, bad int
}

// run ends with the failure of the least that failed, and with a refusal, which another search is for.
func (s *heavySearch) run(ctx context.Context, failure error) (refusal, _ error) {
	for range heavyTries {
		n, ok := s.next()
		if !ok {
			break
		}
		s.p.backend.reason = "search for Services that are too big"
		_, err := s.p.apply(ctx, s.p.backend, s.first(n))
		switch {
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, proxiers.ErrRefused):
			s.good = n
			return err, failure
		case err != nil:
			s.bad, failure = n, err
		default:
			s.good = n
		}
	}
	return nil, failure
}

// next gives how many to try: half the weight between what succeeded and what failed.
func (s *heavySearch) next() (n int, ok bool) {
	low := max(s.good+1, s.floor)
	if low >= s.bad {
		return 0, false
	}
	half := (s.sums[max(s.good, 0)] + s.sums[s.bad]) / 2
	n, _ = slices.BinarySearch(s.sums, half)
	return max(low, min(n, s.bad-1)), true
}

// first gives the plan with the first n Services.
func (s *heavySearch) first(n int) *plan.Plan {
	out := make(map[serviceKey]bool, len(s.list)-n)
	for _, h := range s.list[n:] {
		out[h.serviceKey] = true
	}
	return replace(s.all, func(svc *plan.ServicePort) *plan.ServicePort {
		if out[serviceOf(svc)] {
			return nil
		}
		return svc
	})
}
