package iptables

import (
	"log/slog"
	"slices"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

var families = []plan.Family{plan.IPv4, plan.IPv6}

func testLogger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func testEnv(t testing.TB) proxiers.Env {
	return proxiers.Env{
		Logger: testLogger(t), Families: families, MasqueradeBit: 14,
		Drift: func(string) {}, Progress: func(int, int) {},
	}
}

func testComponent(t testing.TB, name string) proxiers.Component {
	t.Helper()
	list := Components()
	i := slices.IndexFunc(list, func(c proxiers.Component) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no component %q", name)
	}
	return list[i]
}

// variantComponents returns the components with a fixed variant: all except the component named "iptables", which only
// selects one of the others.
func variantComponents() []proxiers.Component {
	return slices.DeleteFunc(Components(), func(c proxiers.Component) bool { return c.Resolve != nil })
}

func registeredTables(t testing.TB) (all []string) {
	t.Helper()
	for _, f := range families {
		names, err := xtables.Tables(xtables.Legacy, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all = append(all, f.String()+" "+name)
		}
	}
	slices.Sort(all)
	return all
}
