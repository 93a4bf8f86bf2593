package conformance

import (
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"edgeway/proxiers/plan"
)

//go:embed testdata/*.txtar
var scenarioFiles embed.FS

// scenario is a file in testdata. A scenario contains the plans that the suite applies one after another, and the
// expected flows for each plan.
type scenario struct {
	name  string
	about string
	steps []step
}

type step struct {
	spec  *spec
	flows []flow
}

// flow is a line of a "flows" section.
type flow struct {
	line      string
	protocols []plan.Protocol
	families  []plan.Family

	source, to string
	port       uint16
	verdict    plan.Verdict
	endpoints  []string // endpoint names if the verdict is Forward, with "+snat" if the backend must rewrite the source
}

func loadScenarios() ([]scenario, error) {
	entries, err := scenarioFiles.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var all []scenario
	for _, e := range entries {
		data, err := scenarioFiles.ReadFile("testdata/" + e.Name())
		if err != nil {
			return nil, err
		}
		sc, err := parseScenario(txtar.Parse(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		sc.name = strings.TrimSuffix(e.Name(), ".txtar")
		all = append(all, sc)
	}
	return all, nil
}

func parseScenario(a *txtar.Archive) (scenario, error) {
	sc := scenario{about: string(a.Comment)}
	if strings.TrimSpace(sc.about) == "" {
		return sc, errors.New("the scenario has no description before its first section")
	}
	for i, f := range a.Files {
		want := []string{"plan", "flows"}[i%2]
		if f.Name != want {
			return sc, fmt.Errorf("section %d is %q, not %q: plan and flows sections must alternate", i+1, f.Name, want)
		}
		if want == "plan" {
			sp, err := parseSpec(string(f.Data))
			if err != nil {
				return sc, err
			}
			sc.steps = append(sc.steps, step{spec: sp})
			continue
		}
		flows, err := parseFlows(string(f.Data))
		if err != nil {
			return sc, err
		}
		sc.steps[len(sc.steps)-1].flows = flows
	}
	for _, st := range sc.steps {
		if len(st.flows) == 0 {
			return sc, errors.New("a plan has no flows")
		}
	}
	if len(sc.steps) == 0 {
		return sc, errors.New("no plan")
	}
	return sc, nil
}

func parseFlows(text string) (flows []flow, err error) {
	ps, fs := protocols, families
	for _, line := range strings.Split(text, "\n") {
		words := fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "for":
			if ps, fs, err = parseFor(words[1:]); err != nil {
				return nil, err
			}
		default:
			f := flow{line: strings.Join(words, " "), protocols: ps, families: fs}
			if err := f.parse(words); err != nil {
				return nil, fmt.Errorf("flow %q: %w", line, err)
			}
			flows = append(flows, f)
		}
	}
	return flows, nil
}

// parse parses a line of the form "SOURCE -> ADDRESS:PORT VERDICT-OR-ENDPOINTS...".
func (f *flow) parse(words []string) error {
	if len(words) < 4 || words[1] != "->" {
		return errors.New("the line is not of the form SOURCE -> ADDRESS:PORT EXPECTATION")
	}
	f.source = words[0]
	to, port, _ := strings.Cut(words[2], ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("port: %w", err)
	}
	f.to, f.port = to, uint16(n)
	for _, v := range []plan.Verdict{plan.Reject, plan.Drop, plan.Pass} {
		if len(words) == 4 && words[3] == v.String() {
			f.verdict = v
			return nil
		}
	}
	f.endpoints = words[3:]
	slices.Sort(f.endpoints)
	return nil
}

func (f *flow) rows() ([]row, error) {
	var rows []row
	for _, proto := range f.protocols {
		for _, family := range f.families {
			addr, err := address(f.to, family)
			if err != nil {
				return nil, err
			}
			r, err := newRow(f.source, netip.AddrPortFrom(addr, f.port), proto)
			if err != nil {
				return nil, err
			}
			r.everyEndpoint = true
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// difference describes how the result of plan.Decide differs from the line, or returns "" if they agree.
func (f *flow) difference(w *suiteLab, p *plan.Plan, r row) string {
	d := p.Decide(r.packet())
	if d.Verdict != f.verdict {
		return fmt.Sprintf("plan.Decide says %s (%s)", d.Verdict, d.Reason)
	}
	says := w.endpointNames(d, r.from)
	if f.verdict == plan.Forward && !slices.Equal(says, f.endpoints) {
		return fmt.Sprintf("plan.Decide says %v (%s)", says, d.Reason)
	}
	return ""
}

// endpointNames returns the sorted names of a decision's endpoints, in scenario notation.
func (w *suiteLab) endpointNames(d plan.Decision, from netip.Addr) []string {
	var names []string
	for _, e := range d.Endpoints {
		name := w.endpointName(e.Addr)
		if d.SNATFor(from, e) {
			name += "+snat"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (w *suiteLab) endpointName(at netip.AddrPort) string {
	for name, addrs := range w.endpoints {
		if addrs[plan.FamilyOf(at.Addr())] == at {
			return name
		}
	}
	return at.String()
}
