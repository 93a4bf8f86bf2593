package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"edgeway/proxiers/plan"
)

func parseSpec(text string) (*spec, error) {
	s := &spec{nodePorts: []string{"node-1", "node-2"}, cidrs: defaultServiceCIDRs}
	for n, line := range strings.Split(text, "\n") {
		if words := fields(line); len(words) > 0 {
			if err := s.parseLine(words); err != nil {
				return nil, fmt.Errorf("plan, line %d: %w", n+1, err)
			}
		}
	}
	return s, nil
}

// fields returns the words of a line, up to the first "#", which starts a comment.
func fields(line string) []string {
	line, _, _ = strings.Cut(line, "#")
	return strings.Fields(line)
}

func (s *spec) parseLine(words []string) error {
	args := words[1:]
	switch words[0] {
	case "service":
		if len(args) != 1 {
			return errors.New("a service has one name")
		}
		s.services = append(s.services, &service{name: args[0], protocols: protocols, families: families})
		return nil
	case "nodeports":
		s.nodePorts = args
		return nil
	case "cidrs":
		s.cidrs = nil
		for _, a := range args {
			p, err := netip.ParsePrefix(a)
			if err != nil {
				return fmt.Errorf("service CIDR: %w", err)
			}
			s.cidrs = append(s.cidrs, p)
		}
		return nil
	case "pods":
		by, known := map[string]podsBy{
			"source": podsBySource, "interface": podsByInterface,
			"unknown": podsUnknown,
		}[strings.Join(args, " ")]
		if !known {
			return fmt.Errorf(`"pods" needs "source", "interface" or "unknown", not %q`, args)
		}
		s.pods = by
		return nil
	}
	if len(s.services) == 0 {
		return fmt.Errorf("%q must follow a service line", words[0])
	}
	return s.services[len(s.services)-1].parseLine(words)
}

func (s *service) parseLine(words []string) (err error) {
	switch words[0] {
	case "for":
		s.protocols, s.families, err = parseFor(words[1:])
	case "affinity":
		s.affinity, err = time.ParseDuration(strings.Join(words[1:], " "))
	case "cluster":
		s.pools[plan.ClusterPool] = words[1:]
	case "local":
		s.pools[plan.LocalPool] = words[1:]
	default:
		var f frontend
		if f, err = parseFrontend(words); err == nil {
			s.frontends = append(s.frontends, f)
		}
	}
	return err
}

// parseFor parses words such as "TCP SCTP IPv6". parseFor returns all protocols if the words name no protocol, and both
// families if the words name no family.
func parseFor(words []string) (ps []plan.Protocol, fs []plan.Family, err error) {
	for _, w := range words {
		if p, ok := plan.ParseProtocol(w); ok {
			ps = append(ps, p)
			continue
		}
		i := slices.IndexFunc(families, func(f plan.Family) bool { return f.String() == w })
		if i < 0 {
			return nil, nil, fmt.Errorf("%q is neither a protocol nor a family", w)
		}
		fs = append(fs, families[i])
	}
	if ps == nil {
		ps = protocols
	}
	if fs == nil {
		fs = families
	}
	return ps, fs, nil
}

// parseFrontend parses a line such as "LoadBalancerIP lb-1:80 from client-a  all=cluster outside=local".
func parseFrontend(words []string) (f frontend, err error) {
	kinds := []plan.FrontendKind{plan.ClusterIP, plan.ExternalIP, plan.LoadBalancerIP, plan.NodePort}
	i := slices.IndexFunc(kinds, func(k plan.FrontendKind) bool { return k.String() == words[0] })
	if i < 0 {
		return f, fmt.Errorf("unknown word %q", words[0])
	}
	if len(words) < 3 {
		return f, fmt.Errorf("%s needs an address, a port and routes", words[0])
	}
	f.kind = kinds[i]
	port := words[1]
	if f.kind != plan.NodePort {
		f.addr, port, _ = strings.Cut(words[1], ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return f, fmt.Errorf("port of %q: %w", words[1], err)
	}
	f.port = uint16(n)
	words = words[2:]
	if words[0] == "from" {
		f.from = []string{}
		for words = words[1:]; len(words) > 0 && !strings.Contains(words[0], "="); words = words[1:] {
			if words[0] != "nowhere" {
				f.from = append(f.from, words[0])
			}
		}
	}
	return f, f.parseRoutes(words)
}

func (f *frontend) parseRoutes(words []string) error {
	var given [3]bool
	for _, w := range words {
		who, what, _ := strings.Cut(w, "=")
		r, err := parseRoute(what)
		if err != nil {
			return err
		}
		found := false
		for _, o := range []plan.Origin{plan.FromPod, plan.FromHost, plan.FromOutside} {
			if who == o.String() || who == "all" {
				f.routes[o], given[o], found = r, true, true
			}
		}
		if !found {
			return fmt.Errorf(`origin %q is not "pod", "host", "outside" or "all"`, who)
		}
	}
	if slices.Contains(given[:], false) {
		return errors.New("every origin needs a route")
	}
	return nil
}

func parseRoute(text string) (plan.Route, error) {
	r, known := map[string]plan.Route{
		"cluster":      {Pool: plan.ClusterPool},
		"cluster+snat": {Pool: plan.ClusterPool, SNAT: true},
		"local":        {Pool: plan.LocalPool},
		"local+snat":   {Pool: plan.LocalPool, SNAT: true},
		"reject":       {Verdict: plan.Reject},
		"drop":         {Verdict: plan.Drop},
	}[text]
	if !known {
		return r, fmt.Errorf(
			`route %q is not "cluster", "local" (each with or without "+snat"), "reject" or "drop"`, text)
	}
	return r, nil
}
