package file

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/daemon/text"
	"edgeway/proxiers/plan"
)

// across finds what no object shows alone: names that match nothing, and addresses out of their ranges.
func (c *Checked) across() {
	found := parts{services: map[string]*source.Service{}, slices: map[string][]*source.EndpointSlice{}}
	for _, obj := range c.Objects {
		switch obj := obj.(type) {
		case *source.Service:
			found.services[serviceName(obj.Namespace, obj.Name)] = obj
		case *source.EndpointSlice:
			if obj.Service != "" {
				name := serviceName(obj.Namespace, obj.Service)
				found.slices[name] = append(found.slices[name], obj)
			}
		}
	}
	found.names = slices.Sorted(maps.Keys(found.services))
	for _, name := range slices.Sorted(maps.Keys(found.slices)) {
		c.orphans(name, found)
	}
	ranges, clean := c.ranges(), len(c.Faults) == 0
	for _, name := range found.names {
		svc := found.services[name]
		c.checkRange(svc, ranges)
		c.checkSlices(svc, found.slices[name], clean)
	}
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[name]; o.Kind == "Endpoints" && o.APIVersion == "v1" {
			c.checkEndpoints(o, found)
		}
	}
}

// parts are the Services that have a ClusterIP and the slices, by the name of the Service.
type parts struct {
	services map[string]*source.Service
	names    []string // of the Services, in order
	slices   map[string][]*source.EndpointSlice
}

func serviceName(namespace, name string) string {
	return source.Key{Kind: source.KindService, Namespace: namespace, Name: name}.String()
}

func (c *Checked) add(f Fault, fix string, args ...any) {
	f.Fix = fmt.Sprintf(fix, args...)
	c.Faults = append(c.Faults, f)
}

// orphans finds slices of a Service that no manifest has. Where there is another source, that may have it.
func (c *Checked) orphans(name string, found parts) {
	if _, ok := c.objects[name]; ok || !c.opts.Alone || c.incomplete {
		return
	}
	for _, s := range found.slices[name] {
		f := c.objects[s.Key().String()].fault("metadata.labels["+api.LabelServiceName+"]", "no manifest has %s", name)
		fix := "write this Service, or remove the EndpointSlice"
		if c.guesses++; c.guesses <= maxGuesses {
			if other, near := c.likelyService(s, found); near {
				fix = "did you mean " + other + "?"
			}
		}
		c.add(f, "%s", fix)
	}
}

// maxGuesses bounds the slices whose Service is guessed: each looks at the names of all Services.
const maxGuesses = 100

// likelyService gives the Service that a slice of none was likely meant for: one of the same name in another
// namespace, or of a similar name.
func (c *Checked) likelyService(s *source.EndpointSlice, found parts) (string, bool) {
	var similar []string
	for _, name := range found.names {
		svc := found.services[name]
		if svc.Name == s.Service {
			return name, true
		}
		if svc.Namespace == s.Namespace {
			similar = append(similar, svc.Name)
		}
	}
	name, near := text.Nearest(s.Service, similar)
	return serviceName(s.Namespace, name), near
}

// ranges gives the known ranges of ClusterIPs, if all are known: another source has its own.
func (c *Checked) ranges() []netip.Prefix {
	if !c.opts.Alone {
		return nil
	}
	out := slices.Clone(c.opts.ServiceCIDRs)
	for _, obj := range c.Objects {
		if cidr, ok := obj.(*source.ServiceCIDR); ok {
			out = append(out, cidr.CIDRs...)
		}
	}
	return out
}

func (c *Checked) checkRange(svc *source.Service, ranges []netip.Prefix) {
	for i, a := range svc.ClusterIPs {
		ranges := plan.OfFamily(ranges, plan.FamilyOf(a))
		if len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			continue
		}
		field := "spec.clusterIP"
		if i > 0 {
			field = "spec.clusterIPs[" + strconv.Itoa(i) + "]"
		}
		f := c.objects[svc.Key().String()].fault(field, "%s is in no range of Services (%s)", a, list(ranges))
		c.add(f, "write an address in one of them, or add its range to proxy.service_cidrs")
	}
}

func list[T fmt.Stringer](values []T) string {
	var out []string
	for _, v := range values {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

// checkSlices wants the slices of a Service to have its ports and its families. That there is none is told where clean
// says that no other fault can be the cause.
func (c *Checked) checkSlices(svc *source.Service, all []*source.EndpointSlice, clean bool) {
	used := slices.DeleteFunc(slices.Clone(all), func(s *source.EndpointSlice) bool { return len(s.Endpoints) == 0 })
	if len(used) == 0 {
		_, old := c.objects["Endpoints "+svc.Namespace+"/"+svc.Name]
		if c.opts.Alone && !old && clean {
			f := c.objects[svc.Key().String()].fault("",
				"no manifest has an EndpointSlice with endpoints for it, so connections are rejected")
			f.Warning = true
			c.add(f, "write one with the label %s: %s", api.LabelServiceName, svc.Name)
		}
		return
	}
	for _, s := range used {
		if len(svc.ClusterIPs) > 0 &&
			!slices.ContainsFunc(svc.ClusterIPs, func(a netip.Addr) bool { return plan.FamilyOf(a) == s.Family }) {
			f := c.objects[s.Key().String()].fault("addressType",
				"it is %s, but %s has no such ClusterIP, so the endpoints are not used", s.Family, svc.Key())
			c.add(f, "give the Service an address of this family in spec.clusterIPs, or the endpoints one of the other")
		}
	}
	for _, port := range svc.Ports {
		c.checkPort(svc, port, used)
	}
}

// checkPort wants one slice to have a port of the Service: by name and protocol, as the numbers differ.
func (c *Checked) checkPort(svc *source.Service, port source.ServicePort, used []*source.EndpointSlice) {
	var names []string
	for _, s := range used {
		for _, p := range s.Ports {
			if p.Name == port.Name && p.Protocol == port.Protocol {
				return
			}
			names = append(names, fmt.Sprintf("%q (%s)", p.Name, p.Protocol))
		}
	}
	slices.Sort(names)
	has := "no ports"
	if names = slices.Compact(names); len(names) > 0 {
		has = "only " + strings.Join(names, ", ")
	}
	first := used[0]
	f := c.objects[first.Key().String()].fault("ports",
		"the port %q (%s) of %s matches nothing: there are %s, so its connections are rejected",
		port.Name, port.Protocol, svc.Key(), has)
	c.add(f, "give a port of the EndpointSlice the name %q and the protocol %s", port.Name, port.Protocol)
}
