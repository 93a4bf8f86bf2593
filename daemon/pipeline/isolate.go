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

// maxBlamed bounds how many ServicePorts one search may leave out. A host that refuses more has
// another fault, which the error says; the next retry continues from there.
const maxBlamed = 100

var (
	errNotToBlame = errors.New("refused even without the suspected ServicePorts")
	errTooMany    = errors.New("too many ServicePorts are refused for one search")
)

// isolate finds the ServicePorts that make a stage refuse the target, and quarantines them. Then it has the backend
// apply the rest; a follower gets the rest when the backend has applied it. Suspects are the ServicePorts that the
// stage has not accepted before. While one is left out, its previous version stays, unless another ServicePort claims
// its addresses.
//
// A refused partial change can also mean that the kernel's state is not as assumed, so a full sync comes first. A set
// of ServicePorts that was refused is not offered again, but for one attempt to confirm the result.
func (p *Pipeline) isolate(ctx context.Context, st *stage, target *plan.Plan, partial bool, refusal error) error {
	suspects := proxiers.NewChange(st.lastGood, target).Changed
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
	s, err := p.search(ctx, st, target, suspects, refusal)
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
	if p.backend.applied == nil { // the last try was a refused one
		p.backend.reason = "refused ServicePorts left out"
	}
	_, err = p.apply(ctx, p.backend, p.target)
	return err
}

// search looks among the suspects, then among all. The kernel may by now refuse previous versions, so it also
// looks without them.
func (p *Pipeline) search(
	ctx context.Context, st *stage, target *plan.Plan, suspects []*plan.ServicePort, refusal error,
) (s *search, err error) {
	all := target.Services
	if len(suspects) == 0 {
		suspects = all
	}
	refused := map[[32]byte]error{}
	s = &search{
		p: p, stage: st, target: target, refused: refused,
		previous: previousVersions(st.lastGood, target, suspects),
	}
	if err = s.named(ctx, refusal); !errors.Is(err, errNotToBlame) {
		return s, err
	}
	s.blamed = nil
	if err = s.run(ctx, suspects, refusal); !errors.Is(err, errNotToBlame) {
		return s, err
	}
	if len(s.previous) > 0 {
		s = &search{p: p, stage: st, target: target, refused: refused}
		err = s.run(ctx, suspects, refusal)
	}
	if errors.Is(err, errNotToBlame) && len(suspects) < len(all) {
		err = s.run(ctx, all, refusal)
	}
	return s, err
}

// logRefusal logs the same refusal once.
func (p *Pipeline) logRefusal(refusal error, suspects int) {
	level := slog.LevelWarn
	if refusal.Error() == p.refusal {
		level = slog.LevelDebug
	}
	p.refusal = refusal.Error()
	p.opts.Logger.Log(context.Background(), level, "kernel refused a sync, searching for the refused ServicePort",
		"message_id", messageid.SyncRefused, "suspects", suspects, "error", refusal)
}

// previousVersions gives, for suspects that differ from what the kernel accepted last, that version, unless another
// ServicePort of the target has one of its addresses now.
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
	claimed := claimedByOthers(target, versions)
	for svc := range previous {
		if claimed[keyOf(svc)] {
			delete(previous, svc)
		}
	}
	return previous
}

// search finds whom a refusal is about: by what the kernel names, or else by halves.
type search struct {
	p      *Pipeline
	stage  *stage
	target *plan.Plan
	// out is left out of the next try, or is there in its previous version.
	out      map[*plan.ServicePort]struct{}
	previous map[*plan.ServicePort]*plan.ServicePort
	blamed   []blame
	// accepted is set when any try succeeded: only then is a refused single proven to be at fault.
	accepted bool
	// refused remembers tries by what they offered: suspicion can come back to the same set.
	refused map[[32]byte]error
}

type blame struct {
	svc *plan.ServicePort
	err error
}

// named blames one ServicePort after the other that the kernel itself names, until it accepts the rest.
func (s *search) named(ctx context.Context, refusal error) error {
	s.out = map[*plan.ServicePort]struct{}{}
	for refusal != nil {
		r, _ := errors.AsType[*proxiers.Refusal](refusal)
		svc := s.suspect(r)
		switch {
		case svc == nil:
			return fmt.Errorf("%w: %w", errNotToBlame, refusal)
		case len(s.blamed) == maxBlamed:
			return fmt.Errorf("%w: %w", errTooMany, refusal)
		}
		s.out[svc] = struct{}{}
		s.blamed = append(s.blamed, blame{svc, r})
		var err error
		if refusal, err = s.try(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// suspect gives one that the kernel names and that is still in the target; nil: there is none.
func (s *search) suspect(r *proxiers.Refusal) *plan.ServicePort {
	if r == nil {
		return nil
	}
	for _, svc := range r.Services {
		if _, out := s.out[svc]; !out && s.target.Find(svc.Name, svc.Family) == svc {
			return svc
		}
	}
	return nil
}

// run blames suspects, of which it is known that the kernel refuses them together with the rest of
// the target.
func (s *search) run(ctx context.Context, suspects []*plan.ServicePort, refusal error) error {
	if len(suspects) == 0 {
		return fmt.Errorf("%w: %w", errNotToBlame, refusal)
	}
	s.out = make(map[*plan.ServicePort]struct{}, len(suspects))
	for _, svc := range suspects {
		s.out[svc] = struct{}{}
	}
	if err := s.admit(ctx, suspects, refusal); err != nil {
		return err
	}
	return s.confirm(ctx)
}

// confirm offers all blamed ServicePorts once more and acquits them if the kernel accepts them. A kernel that refused
// everything for a moment, and stopped during the search, makes the search by halves blame ServicePorts at random. If
// there is only one suspect, it is blamed for every such refusal.
func (s *search) confirm(ctx context.Context) error {
	blamed := make([]*plan.ServicePort, 0, len(s.blamed))
	for _, b := range s.blamed {
		blamed = append(blamed, b.svc)
	}
	clear(s.refused)
	refused, err := s.try(ctx, blamed)
	if err == nil && refused == nil {
		s.blamed = nil
	}
	return err
}

// admit puts in force as many of set as the kernel accepts and blames the others. The set as a whole
// is known to be refused, with the given error.
//
// Both halves are tried before either is split: where one ServicePort is at fault, half of them are
// in force after two tries and only ever more after that.
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
		return s.admit(ctx, b, refusal) // with a in force, the refusal of the whole is b's
	}
	refusedB, err := s.try(ctx, b)
	if err != nil {
		return err
	}
	if refusedB != nil {
		if err := s.mustAcceptRest(ctx); err != nil {
			return err
		}
	}
	if err := s.admit(ctx, a, refusedA); err != nil || refusedB == nil {
		return err
	}
	return s.admit(ctx, b, refusedB)
}

func (s *search) blame(ctx context.Context, svc *plan.ServicePort, refusal error) error {
	if err := s.mustAcceptRest(ctx); err != nil {
		return err
	}
	if len(s.blamed) == maxBlamed {
		return fmt.Errorf("%w: %w", errTooMany, refusal)
	}
	s.blamed = append(s.blamed, blame{svc, refusal})
	return nil
}

// mustAcceptRest ends the search when no suspect can be at fault, because what is left without them is refused too.
func (s *search) mustAcceptRest(ctx context.Context) error {
	if s.accepted {
		return nil
	}
	refused, err := s.try(ctx, nil)
	if err == nil && refused != nil {
		err = fmt.Errorf("%w: %w", errNotToBlame, refused)
	}
	return err
}

// try offers all that is not left out, and add. A refusal is its first result, anything that ends
// the search its second.
func (s *search) try(ctx context.Context, add []*plan.ServicePort) (refused, err error) {
	for _, svc := range add {
		delete(s.out, svc)
	}
	id := s.offer()
	if err = s.refused[id]; err == nil {
		s.stage.reason = "search for refused ServicePorts"
		_, err = s.p.apply(ctx, s.stage, s.without())
	}
	if err == nil {
		s.accepted = true
		return nil, nil
	}
	for _, svc := range add {
		s.out[svc] = struct{}{}
	}
	if errors.Is(err, proxiers.ErrRefused) && ctx.Err() == nil {
		s.refused[id] = err
		return err, nil
	}
	return nil, err
}

// offer identifies what a try offers, by what it does not have of the target and has instead: the exclusive or of
// the digests.
func (s *search) offer() (id [32]byte) {
	for svc := range s.out {
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

// without gives the target less what is left out.
func (s *search) without() *plan.Plan {
	return replace(s.target, func(svc *plan.ServicePort) *plan.ServicePort {
		if _, out := s.out[svc]; out {
			return s.previous[svc]
		}
		return svc
	})
}
