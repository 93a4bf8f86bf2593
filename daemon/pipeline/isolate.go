package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"edgeway/proxiers"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// maxBlamed is the maximum number of ServicePorts that one search leaves out. If the kernel refuses more than maxBlamed
// ServicePorts, the host probably has a different fault, which the error describes. The next retry continues the
// search.
const maxBlamed = 100

var (
	errNotToBlame = errors.New("the kernel refuses the plan even without the suspected ServicePorts")
	errTooMany    = errors.New("the kernel refuses more ServicePorts than one search can find")
)

// isolate quarantines the ServicePorts that cause a stage to refuse the target. The backend and then the followers
// apply the target without the quarantined ServicePorts. The suspects are the ServicePorts that the stage has not
// accepted before. Edgeway keeps serving the previous version of a quarantined ServicePort, unless another ServicePort
// has one of that version's addresses.
//
// The kernel may also refuse a partial sync because the kernel's state differs from the last plan, so isolate first
// tries a full sync. isolate never offers a refused set of ServicePorts to the kernel again, except once to confirm the
// result.
func (p *Pipeline) isolate(ctx context.Context, st *stage, target *plan.Plan, partial bool, refusal error) error {
	suspects := proxiers.NewChange(st.lastGoodPlan, target).Changed
	if partial {
		st.reason = "partial sync refused"
		first := refusal
		if _, refusal = p.apply(ctx, st, target); !errors.Is(refusal, proxiers.ErrRefused) {
			return refusal
		}
		if _, named := errors.AsType[*proxiers.Refusal](first); named {
			refusal = fmt.Errorf("%w; partial sync: %w", refusal, first)
		}
	}
	p.logRefusal(refusal, len(suspects))
	s, err := p.findRefused(ctx, st, target, suspects, refusal)
	for _, b := range s.blamed {
		p.opts.Logger.Error("ServicePort left out", "message_id", messageid.ServicePortLeftOut,
			"service_port", b.svc.Name.String(), "family", b.svc.Family.String(), "error", b.err)
		p.quarantine.add(b.svc, s.previous[b.svc], b.err)
	}
	p.retarget()
	if err != nil {
		return fmt.Errorf("search for refused ServicePorts: %w", err)
	}
	if st != p.backend {
		return nil
	}
	if p.backend.currentPlan == nil { // the stage refused the last attempt
		p.backend.reason = "leaving out refused ServicePorts"
	}
	_, err = p.apply(ctx, p.backend, p.target)
	return err
}

// findRefused finds the refused ServicePorts among the suspects or, if no suspect is at fault, among all ServicePorts
// in the target. In the first search, each suspect's previous version replaces the suspect. If the kernel refuses the
// target even with all previous versions, these may be at fault too, so a second search leaves the suspects out.
func (p *Pipeline) findRefused(
	ctx context.Context, st *stage, target *plan.Plan, suspects []*plan.ServicePort, refusal error,
) (s *search, err error) {
	all := target.Services
	if len(suspects) == 0 {
		suspects = all
	}
	refused := map[[32]byte]error{}
	s = &search{
		p: p, stage: st, target: target, refusals: refused,
		previous: previousVersions(st.lastGoodPlan, target, suspects),
	}
	if err = s.blameNamed(ctx, refusal); !errors.Is(err, errNotToBlame) {
		return s, err
	}
	s.blamed = nil
	if err = s.bisect(ctx, suspects, refusal); !errors.Is(err, errNotToBlame) {
		return s, err
	}
	if len(s.previous) > 0 {
		s = &search{p: p, stage: st, target: target, refusals: refused}
		err = s.bisect(ctx, suspects, refusal)
	}
	if errors.Is(err, errNotToBlame) && len(suspects) < len(all) {
		err = s.bisect(ctx, all, refusal)
	}
	return s, err
}

// logRefusal logs a refusal as a warning if it differs from the last logged refusal.
func (p *Pipeline) logRefusal(refusal error, suspects int) {
	level := slog.LevelWarn
	if refusal.Error() == p.refusal {
		level = slog.LevelDebug
	}
	p.refusal = refusal.Error()
	p.opts.Logger.Log(context.Background(), level, "kernel refused a sync, searching for faulty ServicePorts",
		"message_id", messageid.SyncRefused, "suspects", suspects, "error", refusal)
}

// previousVersions returns the last accepted version of each changed suspect, unless another ServicePort in the target
// now has one of that version's addresses.
func previousVersions(accepted, target *plan.Plan,
	suspects []*plan.ServicePort,
) map[*plan.ServicePort]*plan.ServicePort {
	previous := map[*plan.ServicePort]*plan.ServicePort{}
	var versions []*plan.ServicePort
	for _, svc := range suspects {
		if before := accepted.Find(svc.Name, svc.Family); before != nil && before.Digest != svc.Digest {
			previous[svc] = before
			versions = append(versions, before)
		}
	}
	claimed := conflictingVersions(target, versions)
	for svc := range previous {
		if claimed[keyOf(svc)] {
			delete(previous, svc)
		}
	}
	return previous
}

// search finds the ServicePorts that cause a refusal. If the kernel does not name the refused ServicePorts, the search
// bisects the suspects.
type search struct {
	p      *Pipeline
	stage  *stage
	target *plan.Plan
	// exclusions holds the ServicePorts that the next attempt leaves out or replaces with their previous versions.
	exclusions map[*plan.ServicePort]struct{}
	previous   map[*plan.ServicePort]*plan.ServicePort
	blamed     []blame
	// accepted reports whether any attempt succeeded. If no attempt succeeded, the refusal of a single ServicePort does
	// not prove that this ServicePort is at fault.
	accepted bool
	// refusals maps each refused set of ServicePorts to the error, because the search may reach the same set again.
	refusals map[[32]byte]error
}

type blame struct {
	svc *plan.ServicePort
	err error
}

// blameNamed blames the ServicePorts that the kernel names, one after another, until the kernel accepts the remaining
// ServicePorts.
func (s *search) blameNamed(ctx context.Context, refusal error) error {
	s.exclusions = map[*plan.ServicePort]struct{}{}
	for refusal != nil {
		r, _ := errors.AsType[*proxiers.Refusal](refusal)
		svc := s.suspect(r)
		switch {
		case svc == nil:
			return fmt.Errorf("%w: %w", errNotToBlame, refusal)
		case len(s.blamed) == maxBlamed:
			return fmt.Errorf("%w: %w", errTooMany, refusal)
		}
		s.exclusions[svc] = struct{}{}
		s.blamed = append(s.blamed, blame{svc, r})
		var err error
		if refusal, err = s.try(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// suspect returns a ServicePort that the refusal names and that is in the target, or nil if there is none.
func (s *search) suspect(r *proxiers.Refusal) *plan.ServicePort {
	if r == nil {
		return nil
	}
	for _, svc := range r.Services {
		if _, out := s.exclusions[svc]; !out && s.target.Find(svc.Name, svc.Family) == svc {
			return svc
		}
	}
	return nil
}

// bisect blames the refused ServicePorts among the suspects. The kernel must already have refused the target with all
// suspects.
func (s *search) bisect(ctx context.Context, suspects []*plan.ServicePort, refusal error) error {
	if len(suspects) == 0 {
		return fmt.Errorf("%w: %w", errNotToBlame, refusal)
	}
	s.exclusions = make(map[*plan.ServicePort]struct{}, len(suspects))
	for _, svc := range suspects {
		s.exclusions[svc] = struct{}{}
	}
	if err := s.admit(ctx, suspects, refusal); err != nil {
		return err
	}
	return s.confirm(ctx)
}

// confirm offers all blamed ServicePorts to the kernel once more, and clears the blame if the kernel accepts them. If
// the kernel refuses everything for a moment and recovers during the search, the bisection blames random ServicePorts.
// Without confirm, a search with a single suspect would blame that suspect for every temporary refusal.
func (s *search) confirm(ctx context.Context) error {
	blamed := make([]*plan.ServicePort, 0, len(s.blamed))
	for _, b := range s.blamed {
		blamed = append(blamed, b.svc)
	}
	clear(s.refusals)
	refused, err := s.try(ctx, blamed)
	if err == nil && refused == nil {
		s.blamed = nil
	}
	return err
}

// admit blames each ServicePort in set that the kernel refuses, and stops excluding the others. The kernel must already
// have refused the whole set. refusal is the kernel's error.
//
// admit tries both halves of set before it splits either half. If only one ServicePort is at fault, Edgeway serves half
// of the set after two attempts, and more of the set after each further attempt.
func (s *search) admit(ctx context.Context, set []*plan.ServicePort, refusal error) error {
	if len(set) == 1 {
		return s.blame(ctx, set[0], refusal)
	}
	a, b := set[:len(set)/2], set[len(set)/2:]
	refusedA, err := s.try(ctx, a)
	if err != nil {
		return err
	}
	if refusedA == nil {
		return s.admit(ctx, b, refusal) // the kernel accepted a, so b caused the refusal of the whole set
	}
	refusedB, err := s.try(ctx, b)
	if err != nil {
		return err
	}
	if refusedB != nil {
		if err := s.verifyRest(ctx); err != nil {
			return err
		}
	}
	if err := s.admit(ctx, a, refusedA); err != nil || refusedB == nil {
		return err
	}
	return s.admit(ctx, b, refusedB)
}

func (s *search) blame(ctx context.Context, svc *plan.ServicePort, refusal error) error {
	if err := s.verifyRest(ctx); err != nil {
		return err
	}
	if len(s.blamed) == maxBlamed {
		return fmt.Errorf("%w: %w", errTooMany, refusal)
	}
	s.blamed = append(s.blamed, blame{svc, refusal})
	return nil
}

// verifyRest ends the search if the kernel refuses the plan even without the suspects, because then no suspect is
// at fault.
func (s *search) verifyRest(ctx context.Context) error {
	if s.accepted {
		return nil
	}
	refused, err := s.try(ctx, nil)
	if err == nil && refused != nil {
		err = fmt.Errorf("%w: %w", errNotToBlame, refused)
	}
	return err
}

// try offers the target to the kernel, and leaves out all ServicePorts in s.exclusions except those in add. refused is
// the error if the kernel refuses the attempt. err is any other error, which ends the search.
func (s *search) try(ctx context.Context, add []*plan.ServicePort) (refused, err error) {
	for _, svc := range add {
		delete(s.exclusions, svc)
	}
	id := s.offerID()
	if err = s.refusals[id]; err == nil {
		s.stage.reason = "search for refused ServicePorts"
		_, err = s.p.apply(ctx, s.stage, s.reducedTarget())
	}
	if err == nil {
		s.accepted = true
		return nil, nil
	}
	for _, svc := range add {
		s.exclusions[svc] = struct{}{}
	}
	if errors.Is(err, proxiers.ErrRefused) && ctx.Err() == nil {
		s.refusals[id] = err
		return err, nil
	}
	return nil, err
}

// offerID returns an identifier for the set of ServicePorts that the next attempt offers to the kernel: the XOR of the
// digests of the ServicePorts in exclusions and of their previous versions.
func (s *search) offerID() (id [32]byte) {
	for svc := range s.exclusions {
		mix(&id, svc)
		if previous := s.previous[svc]; previous != nil {
			mix(&id, previous)
		}
	}
	return id
}

func mix(id *[32]byte, svc *plan.ServicePort) {
	for i, b := range svc.Digest {
		id[i] ^= b
	}
}

// reducedTarget returns the target, but replaces each ServicePort in exclusions with its previous version or, if it has
// none, omits the ServicePort.
func (s *search) reducedTarget() *plan.Plan {
	return replace(s.target, func(svc *plan.ServicePort) *plan.ServicePort {
		if _, out := s.exclusions[svc]; out {
			return s.previous[svc]
		}
		return svc
	})
}
