package nftables

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// Component describes the nftables backend.
func Component() proxiers.Component {
	return proxiers.Component{
		Name:  "nftables",
		Doc:   "separate nft tables",
		Probe: func(ctx context.Context) error { return nfttable.Probe(ctx, schema(false), Sample()) },
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			p, err := newProxier(schema(env.CountConnections), env)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Cleanup: func(ctx context.Context, _ proxiers.Env) error { return nfttable.Cleanup(ctx, tableName) },
		Traits:  proxiers.Traits{CountsConnections: true},
	}
}

const tableName = proxiers.NFTablesTable

func schema(count bool) nfttable.Schema { return EndpointSchema(tableName, count) }

// EndpointSchema returns the schema of tables whose rules choose a connection's endpoint and, if count is set, count
// the connections.
func EndpointSchema(table string, count bool) nfttable.Schema {
	const after = knftables.DNATPriority + "+10"
	return Schema(Options{Table: table, CountConnections: count, LearnChains: []nfttable.Chain{
		BaseChain("learn-prerouting", knftables.PreroutingHook, after, LearnRule),
		BaseChain("learn-output", knftables.OutputHook, after, LearnRule),
	}})
}

// proxier is the running nftables backend. The embedded Table implements proxiers.Maintainer.
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
	if err := p.Table.Apply(ctx, change); err != nil {
		return err
	}
	return p.Prune(ctx, StaleClientMaps(change, p.families))
}

// Connections implements proxiers.Counter.
func (p *proxier) Connections(from *plan.Plan, add func(*plan.ServicePort, plan.FrontendKind, uint64)) error {
	return Connections(p.Table, from, add)
}

// Render returns the nft commands that apply a change, for tests of the translation from Kubernetes objects to rules. A
// nil change.Prev means that the tables do not exist yet.
func Render(env proxiers.Env, change proxiers.Change) string {
	return nfttable.Render(schema(env.CountConnections), env, change)
}
