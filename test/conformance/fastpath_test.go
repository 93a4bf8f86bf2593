package conformance

import (
	"context"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/flowtable"
	"edgeway/proxiers/plan"
)

// TestFastPath enables the fast path for every Service, and verifies that connections still reach the same endpoints.
// The fast path rewrites its whole nft table when a Service changes, so test/vm skips the subtest "writes".
func TestFastPath(t *testing.T) {
	b := nftablesBackend()
	b.VMOnlyReason = "not every kernel supports flowtables"
	c := flowtable.Component(b.Traits.SharedTables)
	start := c.New
	c.New = func(ctx context.Context, env proxiers.Env) (proxiers.Proxier, error) {
		p, err := start(ctx, env)
		return &fastPathProxier{Proxier: p}, err
	}
	b.Followers = []proxiers.Component{c}
	Run(t, b)
}

// fastPathProxier is a Proxier that enables the fast path for every Service in a plan.
type fastPathProxier struct {
	proxiers.Proxier
	before, after *plan.Plan
}

func (o *fastPathProxier) Apply(ctx context.Context, change proxiers.Change) error {
	prev := o.after
	if change.Prev == nil || change.Prev != o.before {
		prev = nil
	}
	next := *change.Next
	next.Services = make([]*plan.ServicePort, len(change.Next.Services))
	for i, svc := range change.Next.Services {
		all := *svc
		all.LongLived = true
		all.Seal()
		next.Services[i] = &all
	}
	o.before, o.after = change.Next, &next
	return o.Proxier.Apply(ctx, proxiers.NewChange(prev, &next))
}
