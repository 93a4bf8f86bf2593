package nftables

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/dispatch"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// Component describes the backend.
func Component() proxiers.Component {
	return proxiers.Component{
		Name:  "nftables",
		Doc:   "tables of its own",
		Probe: func(ctx context.Context) error { return nfttable.Probe(ctx, schema(), dispatch.Sample()) },
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			p, err := newProxier(schema(), env)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Cleanup: func(ctx context.Context, _ proxiers.Env) error { return nfttable.Cleanup(ctx, tableName) },
	}
}

const tableName = proxiers.NFTablesTable

// schema describes the tables: rules pick endpoints themselves, before all filters.
func schema() nfttable.Schema {
	const after = knftables.DNATPriority + "+10"
	return dispatch.Schema(dispatch.Options{Table: tableName, Learn: []nfttable.Chain{
		dispatch.Hooked("learn-prerouting", knftables.PreroutingHook, after, dispatch.LearnNew),
		dispatch.Hooked("learn-output", knftables.OutputHook, after, dispatch.LearnNew),
	}})
}

// proxier is the running backend. Its table is a proxiers.Tender.
type proxier struct {
	*nfttable.Table
	families []plan.Family
	failures *prometheus.CounterVec
}

func newProxier(s nfttable.Schema, env proxiers.Env) (*proxier, error) {
	table, err := nfttable.New(s, env)
	if err != nil {
		return nil, err
	}
	return &proxier{Table: table, families: env.Families, failures: newFailures(env.Families)}, nil
}

// Apply implements proxiers.Applier.
func (p *proxier) Apply(ctx context.Context, change proxiers.Change) error {
	err := p.apply(ctx, change)
	if err != nil {
		for _, f := range p.families {
			p.failures.WithLabelValues(f.String()).Inc()
		}
	}
	return err
}

func (p *proxier) apply(ctx context.Context, change proxiers.Change) error {
	if err := dispatch.Check(change.Next.Node); err != nil {
		return err
	}
	if err := p.Table.Apply(ctx, change); err != nil {
		return err
	}
	return p.Prune(ctx, dispatch.Learned(change, p.families))
}

// Render gives the transaction that leads from one plan to the next, in nft's syntax, for tests of the way from objects
// to rules. Prev nil: from no tables.
func Render(env proxiers.Env, change proxiers.Change) string {
	return nfttable.Render(schema(), env, change)
}
