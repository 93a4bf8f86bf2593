package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
)

const foreignRules = `table inet foreign {
	chain INPUT {
		type filter hook input priority filter; policy accept;
	}
}
`

// TestEmptyTablesOfIptablesAreNoDifference holds the filter to what it may leave out, and to nothing more.
func TestEmptyTablesOfIptablesAreNoDifference(t *testing.T) {
	const empty = `table ip nat {
	chain PREROUTING {
		type nat hook prerouting priority dstnat; policy accept;
	}

	chain OUTPUT {
		type nat hook output priority -100; policy accept;
	}
}
# Warning: table ip6 filter is managed by iptables-nft, do not touch!
table ip6 filter {
	chain FORWARD {
		type filter hook forward priority filter; policy accept;
	}
}
table ip mangle {
	chain OUTPUT {
		type route hook output priority mangle; policy accept;
	}
}
`
	if got := withoutEmptyTables("# list\n" + empty + foreignRules); got != "# list\n"+foreignRules {
		t.Errorf("of empty tables and another program's is left:\n%s", got)
	}
	for _, c := range []struct{ name, old, different string }{
		{"a rule", "policy accept;\n\t}\n\n", "policy accept;\n\t\ttcp dport 1 accept\n\t}\n\n"},
		{"a policy", "priority dstnat; policy accept", "priority dstnat; policy drop"},
		{"a chain of its own", "chain OUTPUT {\n\t\ttype nat hook output priority -100; policy accept;\n\t}", "chain KUBE-SERVICES {\n\t}"},
		{"a base chain of its own", "chain OUTPUT", "chain edgeway"},
		{"a set", "chain PREROUTING", "set s {\n\t\ttype ipv4_addr\n\t}\n\n\tchain PREROUTING"},
		{"another table", "table ip nat", "table ip edgeway"},
		{"another family", "table ip nat", "table inet nat"},
	} {
		text := strings.Replace(empty, c.old, c.different, 1)
		if got := withoutEmptyTables(text); text == empty || !strings.Contains(got, strings.SplitN(c.different, "\n", 2)[0]) {
			t.Errorf("%s: left out, too; what stays is %q", c.name, got)
		}
	}
}

// component is one that does nothing but say so.
func component(name string, done *[]string, fails error) proxiers.Component {
	note := func(what string) { *done = append(*done, name+" "+what) }
	return proxiers.Component{
		Name:  name,
		Probe: func(context.Context) error { note("probe"); return nil },
		New: func(context.Context, proxiers.Env) (proxiers.Proxier, error) {
			note("new")
			return noted{note}, fails
		},
		Cleanup: func(context.Context, proxiers.Env) error { note("cleanup"); return nil },
	}
}

type noted struct{ note func(string) }

func (n noted) Apply(context.Context, proxiers.Change) error { n.note("apply"); return nil }
func (n noted) Close() error                                 { n.note("close"); return nil }

// TestFollowersRunBesideTheirBackend: after it, and they are cleaned up before it.
func TestFollowersRunBesideTheirBackend(t *testing.T) {
	var done []string
	b := Backend{Component: component("backend", &done, nil), Followers: []proxiers.Component{component("follower", &done, nil)}}
	s, err := b.start(t.Context(), silentEnv())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Apply(t.Context(), proxiers.Change{}), s.Close(), b.cleanUp(t.Context(), silentEnv())} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"backend new", "follower new", "backend apply", "follower apply", "backend close", "follower close",
		"follower cleanup", "backend cleanup",
	}
	if !slices.Equal(done, want) {
		t.Errorf("done was %q, want %q", done, want)
	}
	// One that can not start leaves no other running.
	done = nil
	b.Followers[0] = component("follower", &done, errors.New("no"))
	b.Component = component("backend", &done, nil)
	if _, err := b.start(t.Context(), silentEnv()); err == nil || !slices.Contains(done, "backend close") {
		t.Errorf("a follower that can not start: error %v, done was %q", err, done)
	}
}
