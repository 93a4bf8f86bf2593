package nftables

import (
	"flag"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/plan"
)

var update = flag.Bool("update", false, "write the golden files")

func testRenderer(families ...plan.Family) *renderer {
	return &renderer{nft: knftables.NewFake("", ""), table: tableName, families: families, masqueradeMark: 1 << 14}
}

func TestPartialTransactions(t *testing.T) {
	for _, c := range plantest.Changes() {
		t.Run(c.Name, func(t *testing.T) {
			r := testRenderer(plan.IPv4, plan.IPv6)
			l := newLedger()
			r.enlist(l, c.Prev)
			tx, _ := r.partial(l, c.Prev, c.Next, time.Now())
			plantest.Golden(t, *update, c.Name, tx.String())
		})
	}
}

func TestFirstTransaction(t *testing.T) {
	r := testRenderer(plan.IPv4, plan.IPv6)
	r.podInterfaces = []string{"veth*"}
	next := newPlan(testNode(), webServices()...)
	tx := r.nft.NewTransaction()
	r.base(tx, next.Node, false)
	r.addNode(tx, next.Node)
	r.chunk(tx, newLedger(), next.Services, len(next.Services))
	plantest.Golden(t, *update, "first", tx.String())
}

func TestChunkKeepsServicesTogether(t *testing.T) {
	r := testRenderer(plan.IPv4)
	var list []*plan.ServicePort
	for _, port := range []string{"a", "b", "c"} {
		svc := service("multi", nil)
		svc.Name.Port = port
		list = append(list, svc)
	}
	list = append(list, service("next", nil))
	rest := r.chunk(r.nft.NewTransaction(), newLedger(), list, 2)
	if len(rest) != 1 || rest[0].Name.Name != "next" {
		t.Errorf("a chunk of 2 left %d ServicePorts, want the one of the next Service", len(rest))
	}
}
