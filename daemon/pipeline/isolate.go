package pipeline

import (
	"context"
	"errors"
	"fmt"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// maxBlamed bounds how many ServicePorts one search may leave out. A host that refuses more has
// another fault, which the error then says; the next retry goes on from there.
const maxBlamed = 100

var (
	errNotToBlame = errors.New("refused whatever is left out")
	errTooMany    = errors.New("more ServicePorts are refused than one search leaves out")
)

// isolate finds the ServicePorts that make the backend refuse the target, quarantines them, and puts
// the rest in force. Suspects are those that the kernel has not taken before.
//
// A refused partial change can also mean that the kernel's state is not what was thought, so a full
// sync comes first. No set of ServicePorts that was refused is offered again.
func (p *Pipeline) isolate(ctx context.Context, suspects []*plan.ServicePort, partial bool, refusal error) error {
	if partial {
		p.backend.reason = "partial sync refused"
		if _, refusal = p.apply(ctx, p.backend, p.target); !errors.Is(refusal, proxiers.ErrRefused) {
			return refusal
		}
	}
	p.opts.Logger.Warn("kernel refused a sync, searching for the ServicePort to blame", "suspects", len(suspects), "error", refusal)
	s := &search{p: p, target: p.target, out: map[*plan.ServicePort]struct{}{}, refused: map[[32]byte]error{}}
	err := s.run(ctx, suspects, refusal)
	if errors.Is(err, errNotToBlame) && len(suspects) < len(p.target.Services) {
		err = s.run(ctx, p.target.Services, refusal)
	}
	for _, b := range s.blamed {
		p.opts.Logger.Error("ServicePort left out", "service_port", b.svc.Name.String(), "family", b.svc.Family.String(), "error", b.err)
		p.quarantine.add(b.svc, b.err)
	}
	if err != nil {
		p.retarget()
		return fmt.Errorf("search for refused ServicePorts: %w", err)
	}
	if p.backend.applied == nil { // the last try was a refused one
		p.backend.reason = "refused ServicePorts left out"
		_, err = p.apply(ctx, p.backend, s.without())
	}
	p.target = p.backend.lastGood
	return err
}

// search narrows down a refusal by halves.
type search struct {
	p      *Pipeline
	target *plan.Plan
	out    map[*plan.ServicePort]struct{} // left out of the next try
	blamed []blame
	// accepted is set when any try succeeded: only then is a refused single proven to be at fault.
	accepted bool
	// refused remembers tries by what they left out: suspicion can come back to the same set.
	refused map[[32]byte]error
}

type blame struct {
	svc *plan.ServicePort
	err error
}

// run blames suspects, of which it is known that the kernel refuses them together with the rest of
// the target.
func (s *search) run(ctx context.Context, suspects []*plan.ServicePort, refusal error) error {
	if len(suspects) == 0 {
		return fmt.Errorf("%w: %w", errNotToBlame, refusal)
	}
	clear(s.out)
	for _, svc := range suspects {
		s.out[svc] = struct{}{}
	}
	return s.admit(ctx, suspects, refusal)
}

// admit puts in force as many of set as the kernel takes and blames the others. The set as a whole
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
	if err := s.admit(ctx, a, refusedA); err != nil || refusedB == nil {
		return err
	}
	return s.admit(ctx, b, refusedB)
}

func (s *search) blame(ctx context.Context, svc *plan.ServicePort, refusal error) error {
	if !s.accepted {
		refused, err := s.try(ctx, nil)
		if err != nil {
			return err
		}
		if refused != nil {
			return fmt.Errorf("%w: %w", errNotToBlame, refused)
		}
	}
	if len(s.blamed) == maxBlamed {
		return fmt.Errorf("%w: %w", errTooMany, refusal)
	}
	s.blamed = append(s.blamed, blame{svc, refusal})
	return nil
}

// try offers all that is not left out, and add. A refusal is its first result, anything that ends
// the search its second.
func (s *search) try(ctx context.Context, add []*plan.ServicePort) (refused, err error) {
	for _, svc := range add {
		delete(s.out, svc)
	}
	id := s.outID()
	if err = s.refused[id]; err == nil {
		s.p.backend.reason = "search for refused ServicePorts"
		_, err = s.p.apply(ctx, s.p.backend, s.without())
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

// outID identifies the set that is left out: the exclusive or of the digests of its members.
func (s *search) outID() (id [32]byte) {
	for svc := range s.out {
		for i, b := range svc.Digest {
			id[i] ^= b
		}
	}
	return id
}

// without gives the target less what is left out.
func (s *search) without() *plan.Plan {
	return filter(s.target, func(svc *plan.ServicePort) bool {
		_, out := s.out[svc]
		return !out
	})
}
