package fault_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"edgeway/proxiers/fault"
)

func TestScopes(t *testing.T) {
	outside := fault.Flow{
		ServicePort: "a/web/TCP", Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.1.0.1")},
	}
	host, local := outside, outside
	host.FromHost, local.Local = true, true
	for name, c := range map[string]struct {
		scope                fault.Scope
		outside, host, local bool
	}{
		"all":                {fault.Scope{}, true, true, true},
		"the ServicePort":    {fault.Scope{ServicePort: "a/web/TCP"}, true, true, true},
		"another one":        {fault.Scope{ServicePort: "a/web/UDP"}, false, false, false},
		"the host's":         {fault.Scope{Clients: fault.Host}, false, true, false},
		"those of others":    {fault.Scope{Clients: fault.Others}, true, false, true},
		"forwarded":          {fault.Scope{Clients: fault.Forwarded}, true, false, false},
		"to the destination": {fault.Scope{To: netip.MustParsePrefix("10.96.0.0/16")}, true, true, true},
		"to the endpoint":    {fault.Scope{To: netip.MustParsePrefix("10.1.0.1/32")}, true, true, true},
		"to another network": {fault.Scope{To: netip.MustParsePrefix("10.2.0.0/16")}, false, false, false},
		"no clients":         {fault.Scope{Clients: fault.NoClients}, false, false, false},
		"of another family":  {fault.Scope{To: netip.MustParsePrefix("::/0")}, false, false, false},
	} {
		if got := c.scope.Selects(outside); got != c.outside {
			t.Errorf("%s: from outside %t", name, got)
		}
		if got := c.scope.Selects(host); got != c.host {
			t.Errorf("%s: from the host %t", name, got)
		}
		if got := c.scope.Selects(local); got != c.local {
			t.Errorf("%s: to local endpoints %t", name, got)
		}
	}
}

func TestSeverityText(t *testing.T) {
	for s := fault.OK; s <= fault.Unhealthy; s++ {
		raw, err := json.Marshal(s)
		var back fault.Severity
		if err != nil || json.Unmarshal(raw, &back) != nil || back != s {
			t.Errorf("%d is %s, and back %d: %v", s, raw, back, err)
		}
	}
	var s fault.Severity
	if json.Unmarshal([]byte(`"bad"`), &s) == nil {
		t.Error("an unknown severity is accepted")
	}
}

func TestSetSortsBySeverity(t *testing.T) {
	var set fault.Set
	set.Include(func() []fault.Fault {
		return []fault.Fault{{ID: "a", Severity: fault.Notice}, {ID: "b", Severity: fault.Problem}}
	})
	set.Include(func() []fault.Fault { return []fault.Fault{{ID: "d", Severity: fault.Problem}} })
	all := set.All()
	if len(all) != 3 || all[0].ID != "b" || all[1].ID != "d" || fault.WorstSeverity(all) != fault.Problem ||
		fault.WorstSeverity(nil) != fault.OK {
		t.Errorf("%+v", all)
	}
	if ids := set.IDs(); ids["a"] || !ids["b"] || ids["ports"] || len(ids) != len(fault.IDs())+3 {
		t.Errorf("IDs %v", ids)
	}
}

// Set.Ignore affects only notices, because a later fault with the same ID may be more severe.
func TestIgnoredNoticesAreLeftOut(t *testing.T) {
	var set fault.Set
	set.Ignore("a", "c")
	set.Include(func() []fault.Fault {
		return []fault.Fault{
			{ID: "a", Severity: fault.Notice},
			{ID: "a", Severity: fault.Warning},
			{ID: "a", Severity: fault.Problem},
			{ID: "a", Severity: fault.Unhealthy},
			{ID: "b", Severity: fault.Notice},
			{ID: "c", Severity: fault.Notice},
		}
	})
	var left []string
	for _, f := range set.All() {
		left = append(left, f.ID+" "+f.Severity.String())
	}
	if want := []string{"a unhealthy", "a problem", "a warning", "b notice"}; !slices.Equal(left, want) {
		t.Errorf("%q, want %q", left, want)
	}
	if ids := set.IDs(); ids["c"] || !ids["a"] {
		t.Errorf("IDs %v", ids)
	}
}

func TestBounded(t *testing.T) {
	var all []fault.Fault
	for range 13 {
		all = append(all, fault.Fault{ID: "ports", Severity: fault.Problem, Message: "p"})
	}
	all = append(all, fault.Fault{ID: "ports", Severity: fault.Warning},
		fault.Fault{ID: "other", Severity: fault.Problem})
	got := fault.Truncate(all)
	if len(got) != 12 || got[9].Message != "p; and 3 more such faults" || got[10].Severity != fault.Warning {
		t.Errorf("%+v", got)
	}
	if all[9].Message != "p" || len(fault.Truncate(all[:10])) != 10 || fault.Truncate(all[:10])[9].Message != "p" {
		t.Error("what is not too long is changed")
	}
}
