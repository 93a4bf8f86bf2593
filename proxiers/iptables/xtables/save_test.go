package xtables

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

func TestSave(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		iptablestest.Restore(t, v, plan.IPv4, NAT, ":DOCKER - [0:0]", ":KUBE-SERVICES - [0:0]",
			`-A PREROUTING -m comment --comment "edgeway: Services" -j KUBE-SERVICES`,
			"-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER", "-A DOCKER -p tcp", "-A DOCKER")
		var chains []string
		rules := map[string][]string{}
		err := testTools(t, v, plan.IPv4).Save(t.Context(), NAT, func(l Line) {
			if l.IsRule {
				rules[l.Chain] = append(rules[l.Chain], l.Rule)
			} else {
				chains = append(chains, l.Chain)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(chains)
		chains = slices.DeleteFunc(chains, func(c string) bool {
			return c == "INPUT" || c == "OUTPUT" ||
				c == "POSTROUTING"
		})
		if want := []string{"DOCKER", "KUBE-SERVICES", "PREROUTING"}; !slices.Equal(chains, want) {
			t.Errorf("chains: got %q, want %q", chains, want)
		}
		want := map[string][]string{
			"PREROUTING": {`-m comment --comment "edgeway: Services" -j KUBE-SERVICES`, "-m addrtype --dst-type LOCAL -j DOCKER"},
			"DOCKER":     {"-p tcp", ""},
		}
		if !maps.EqualFunc(rules, want, slices.Equal) {
			t.Errorf("rules: got %q, want %q", rules, want)
		}
	})
}

func TestSaveCreatesNoTables(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		before := fmt.Sprint(iptablestest.NFTRuleset(t), registeredTables(t))
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			for _, table := range []string{NAT, Filter} {
				if err := testTools(t, v, f).Save(t.Context(), table,
					func(l Line) { t.Errorf("%s %s has %+v", f, table, l) }); err != nil {
					t.Error(err)
				}
			}
		}
		if after := fmt.Sprint(iptablestest.NFTRuleset(t), registeredTables(t)); after != before {
			t.Errorf("before %q, after %q", before, after)
		}
	})
}

// After an invalid line, saveReader neither parses nor buffers the rest of the output.
func TestEndlessLine(t *testing.T) {
	visited := 0
	r := &saveReader{visit: func(Line) { visited++ }}
	for range 100 {
		if n, err := r.Write(bytes.Repeat([]byte("x"), 4096)); n != 4096 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if _, err := r.Write([]byte("\n-A KUBE-SERVICES -j ACCEPT\n")); err != nil || r.err == nil || visited > 0 ||
		len(r.partialLine) > 2*maxLine {
		t.Errorf("write: %v, read: %v, %d lines, %d bytes kept", err, r.err, visited, len(r.partialLine))
	}
}

// FuzzSave splits random output into two pieces. The result must not depend on the split, and must consist of text from
// the output.
func FuzzSave(f *testing.F) {
	f.Add([]byte("# made by\n*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n-A PREROUTING -j DOCKER\n-A DOCKER\nCOMMIT\n"), 30)
	f.Add([]byte(":\n-A \n-A  x\n: \n\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, output []byte, cut int) {
		read := func(pieces ...[]byte) (lines []Line, err error) {
			r := &saveReader{visit: func(l Line) { lines = append(lines, l) }}
			for _, p := range pieces {
				if n, err := r.Write(p); n != len(p) || err != nil {
					t.Fatalf("%d of %d bytes, %v", n, len(p), err)
				}
			}
			return lines, r.err
		}
		whole, err := read(output)
		cut = max(0, min(cut, len(output)))
		if parts, failed := read(output[:cut], output[cut:]); !slices.Equal(parts, whole) ||
			(err == nil) != (failed == nil) {
			t.Errorf("%+v, %v and in pieces %+v, %v", whole, err, parts, failed)
		}
		for _, l := range whole {
			text := ":" + l.Chain
			if l.IsRule {
				text = strings.TrimSuffix("-A "+l.Chain+" "+l.Rule, " ")
			}
			if !bytes.Contains(output, []byte(text)) {
				t.Errorf("%+v is not in the output", l)
			}
			if to := Target(l.Rule); !strings.Contains(l.Rule, to) || strings.Contains(to, " ") {
				t.Errorf("target %q of %q", to, l.Rule)
			}
		}
	})
}

func TestTarget(t *testing.T) {
	for text, want := range map[string]string{
		"-j ACCEPT":                                    "",
		"-p tcp -m tcp --dport 80 -j KUBE-SVC-A":       "KUBE-SVC-A",
		"-g KUBE-SERVICES":                             "KUBE-SERVICES",
		"-p tcp -j DNAT --to-destination 192.0.2.1:80": "DNAT",
		`-m comment --comment "see -j KUBE-SERVICES edgeway" -j DOCKER`: "DOCKER",
		"-m mark --mark 0x1": "",
	} {
		if got := Target(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
