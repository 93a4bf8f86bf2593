package nftables

import (
	"flag"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

var update = flag.Bool("update", false, "write the golden files")

func testEnv(families ...plan.Family) proxiers.Env {
	return proxiers.Env{Families: families, MasqueradeBit: 14}
}

func TestPartialTransactions(t *testing.T) {
	for _, c := range plantest.Changes() {
		t.Run(c.Name, func(t *testing.T) {
			if err := plantest.Validate(c.Next); err != nil {
				t.Errorf("the test's plan: %v", err)
			}
			tx := Render(testEnv(plan.IPv4, plan.IPv6), proxiers.NewChange(c.Prev, c.Next))
			plantest.CompareGolden(t, *update, c.Name, tx)
		})
	}
}

func TestFirstTransaction(t *testing.T) {
	node := testNode()
	node.PodInterfaces = []string{"veth*"}
	next := newPlan(node, webServices()...)
	tx := Render(testEnv(plan.IPv4, plan.IPv6), proxiers.NewChange(nil, next))
	plantest.CompareGolden(t, *update, "first", tx)
}

func TestOneFamily(t *testing.T) {
	tx := Render(testEnv(plan.IPv4), proxiers.NewChange(nil, newPlan(testNode(), webServices()...)))
	if strings.Contains(tx, "ip6") || !strings.Contains(tx, "10.96.0.2") {
		t.Errorf("for IPv4 alone:\n%s", tx)
	}
}

func TestProbePlanIsValid(t *testing.T) {
	if err := plantest.Validate(Sample()); err != nil {
		t.Error(err)
	}
}
