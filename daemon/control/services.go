package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// ServiceList lists all Services that the daemon knows, sorted by namespace and name. The list includes Services that
// the daemon does not serve.
type ServiceList struct {
	Items []ServiceItem `json:"items"`
	// Faults holds the faults of unusable manifest documents. Each of these documents may define a Service that is
	// missing from Items.
	Faults []fault.Fault `json:"faults,omitempty"`
}

// ServiceItem describes one Service.
type ServiceItem struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is the Service type that the addresses and ports imply. Type and Source are "" if no source contains the
	// Service.
	Type string `json:"type,omitempty"`
	// Source is "API server", the Service's position in a manifest ("file:line"), or "manifest" if the manifest file is
	// currently unreadable.
	Source string `json:"source,omitempty"`
	// Addresses and Ports hold the values in force or, if Edgeway does not serve the Service, the requested values.
	Addresses []netip.Addr      `json:"addresses"`
	Ports     []ServiceItemPort `json:"ports"`
	// AllEndpoints counts the distinct endpoint addresses. ReadyEndpoints counts the endpoint addresses that receive
	// connections and respond.
	ReadyEndpoints int `json:"ready"`
	AllEndpoints   int `json:"all"`
	// ServicePorts and Endpoints are the Service's shares of the totals in Status.Counts.
	ServicePorts int `json:"servicePorts"`
	Endpoints    int `json:"endpoints"`
	// Connections is the number of new connections, or nil if Edgeway does not count connections.
	Connections *uint64       `json:"connections,omitempty"`
	State       ServiceState  `json:"state"`
	Faults      []fault.Fault `json:"faults,omitempty"`
}

// ServiceItemPort is a port of a Service. Port is 0 if only the NodePort is in force.
type ServiceItemPort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port,omitempty"`
	NodePort uint16 `json:"nodePort,omitempty"`
}

// ServiceState is the worst state that applies to a Service.
type ServiceState string

// The ServiceStates are ordered from worst to best.
const (
	ServiceRefused         ServiceState = "refused-by-kernel" // the kernel rejects a ServicePort, or its newest version
	ServiceLeftOut         ServiceState = "left-out"          // the Service is invalid or too big, or has no address
	ServicePending         ServiceState = "not-in-kernel"     // the kernel does not have the Service yet
	ServiceRemoved         ServiceState = "still-in-kernel"   // the Service was deleted but is still in the kernel
	ServiceNoReadyEndpoint ServiceState = "no-ready-endpoint" // a port has no ready endpoint
	ServiceDead            ServiceState = "dead-endpoints"    // some endpoints do not respond
	ServiceIncomplete      ServiceState = "incomplete"        // Edgeway serves only a part of the Service
	ServiceIsServed        ServiceState = "ok"
)

// ServiceInput holds the arguments of NewServiceList.
type ServiceInput struct {
	State pipeline.State
	// DeadEndpoints holds the endpoints that do not respond. DeadEndpoints may be nil.
	DeadEndpoints *endpointcheck.DeadEndpoints
	// Position returns the "file:line" of an object in a manifest, or "" if the position is unknown. NewServiceList
	// calls Position only for Services in the snapshot.
	Position func(source.Key) string
	// Connections is nil if Edgeway does not count connections.
	Connections map[proxiers.Frontends]uint64
}

// lister indexes the faults by object. refusedFaults holds the faults of ServicePorts that the kernel rejects.
// noEndpointFaults holds the faults of ports without an endpoint. otherFaults holds the faults of the snapshot and the
// plan.
type lister struct {
	ServiceInput
	// snapshot is an empty Snapshot until the sources have listed all objects.
	snapshot                                     *tracker.Snapshot
	refusedFaults, noEndpointFaults, otherFaults map[fault.Object][]fault.Fault
	// connections holds the sum of ServiceInput.Connections for each Service.
	connections map[tracker.Name]uint64
}

// NewPlanTable returns a table of the problems and the Services in a plan that no daemon has applied.
func NewPlanTable(p *plan.Plan, problems []fault.Fault) ServiceTable {
	list, _ := NewServiceList(ServiceInput{State: pipeline.State{AppliedPlan: p}}) // fails only without a plan
	list.Faults = problems
	return ServiceTable{ServiceList: list, EmptyText: "no Service"}
}

// NewServiceList returns the list of all Services, or an error if there is no plan yet.
func NewServiceList(in ServiceInput) (ServiceList, error) {
	list := ServiceList{Items: []ServiceItem{}}
	p, _, err := currentPlan(&in.State)
	if err != nil {
		return list, err
	}
	l := &lister{
		ServiceInput: in, snapshot: cmp.Or(in.State.Snapshot, &tracker.Snapshot{}), connections: map[tracker.Name]uint64{},
	}
	for f, n := range in.Connections {
		l.connections[tracker.Name{Namespace: f.Name.Namespace, Name: f.Name.Name}] += n
	}
	list.Faults = documentFaults(l.snapshot.Problems)
	var refused, idle []fault.Fault
	for _, q := range in.State.Quarantined {
		refused = append(refused, q.Fault())
	}
	var names []tracker.Name
	for _, svc := range l.snapshot.Services {
		names, idle = append(names, svc.Name()), append(idle, planner.UnservedPortFaults(svc, p)...)
	}
	for _, sp := range cmp.Or(in.State.AppliedPlan, &plan.Plan{}).Services {
		names = append(names, tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name})
	}
	l.refusedFaults, l.noEndpointFaults = byObject(refused), byObject(idle)
	l.otherFaults = byObject(slices.Concat(l.snapshot.Problems, in.State.PlanProblems))
	slices.SortFunc(names, tracker.Name.Compare)
	for _, name := range slices.Compact(names) {
		list.Items = append(list.Items, l.item(name))
	}
	return list, nil
}

func byObject(faults []fault.Fault) map[fault.Object][]fault.Fault {
	out := map[fault.Object][]fault.Fault{}
	for _, f := range faults {
		out[f.Object] = append(out[f.Object], f)
	}
	return out
}

// documentFaults returns the faults of unusable manifest documents. documentFaults clears each fault's Object field,
// because the fault's position already identifies the document.
func documentFaults(faults []fault.Fault) (out []fault.Fault) {
	for _, f := range faults {
		if f.Object.Kind == source.KindDocument {
			f.Object = fault.Object{}
			out = append(out, f)
		}
	}
	return out
}

func (l *lister) item(name tracker.Name) ServiceItem {
	known, served := l.snapshot.Find(name), l.State.AppliedPlan.FindService(name.Namespace, name.Name)
	counts := pipeline.Count(&plan.Plan{Services: served})
	item := ServiceItem{
		Namespace: name.Namespace, Name: name.Name, State: ServiceIsServed,
		Addresses: servedAddrs(served), Ports: servedPorts(served),
		ServicePorts: counts.ServicePorts, Endpoints: counts.Endpoints,
	}
	if l.Connections != nil {
		item.Connections = new(l.connections[name])
	}
	if known != nil {
		item.Type, item.Source = typeOf(known.Spec), l.sourceOf(known.Spec)
		if len(served) == 0 {
			item.Addresses, item.Ports = wantedAddrs(known.Spec), wantedPorts(known.Spec)
		}
	}
	dead := l.countEndpoints(&item, known, served)
	l.setState(&item, known, served, dead)
	return item
}

// setState sets an item's state and adds the faults that explain it.
func (l *lister) setState(item *ServiceItem, known *tracker.Service, served []*plan.ServicePort, dead []fault.Fault) {
	key := source.Key{Kind: source.KindService, Namespace: item.Namespace, Name: item.Name}
	planned := l.State.Plan.FindService(item.Namespace, item.Name)
	waiting := source.FaultOf(key, "", "waiting for a sync that is still running or keeps failing")
	waiting.Fix = "edgeway status"
	add := func(state ServiceState, faults ...fault.Fault) {
		if len(faults) > 0 && item.State == ServiceIsServed {
			item.State = state
		}
		item.Faults = append(item.Faults, faults...)
	}
	of := slices.Clone(l.otherFaults[key])
	if known != nil {
		for _, s := range known.Slices {
			of = append(of, l.otherFaults[s.Key()]...)
		}
	}
	add(ServiceRefused, l.refusedFaults[key]...)
	switch {
	case known == nil && l.State.Snapshot != nil:
		add(ServiceRemoved, waiting)
	case known == nil: // immediately after a reload, the sources have not listed any objects yet
	case len(served) == 0 && len(planned) > 0:
		if l.refusedFaults[key] == nil {
			add(ServicePending, waiting)
		}
	case len(served) == 0 && len(of) == 0:
		add(ServiceLeftOut, source.FaultOf(key, "", "this host has no address in the IP families of the Service"))
	case len(served) == 0:
		add(ServiceLeftOut, of...)
		return
	}
	add(ServiceNoReadyEndpoint, l.noEndpointFaults[key]...)
	add(ServiceDead, dead...)
	add(ServiceIncomplete, of...)
}

func (l *lister) sourceOf(s *source.Service) string {
	if !s.Manifest {
		return "API server"
	}
	return cmp.Or(l.Position(s.Key()), "manifest")
}

// countEndpoints sets ReadyEndpoints and AllEndpoints, and returns a fault for each dead endpoint. If Edgeway serves
// the Service, countEndpoints considers only EndpointSlices whose address family matches one of the Service's
// ServicePorts. If no source contains the Service, countEndpoints counts all of the Service's endpoints in the applied
// plan as ready.
func (l *lister) countEndpoints(
	item *ServiceItem, svc *tracker.Service, served []*plan.ServicePort,
) (dead []fault.Fault) {
	families, used := map[plan.Family]bool{}, map[netip.Addr]bool{}
	for _, sp := range served {
		families[sp.Family] = true
		for _, e := range sp.Serving {
			used[e.Addr.Addr()] = true
		}
	}
	if svc == nil {
		item.ReadyEndpoints, item.AllEndpoints = len(used), len(used)
		return nil
	}
	ready := map[netip.Addr]bool{}
	for _, s := range svc.Slices {
		if len(served) > 0 && !families[s.Family] {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			failing := l.deadPortFaults(s, e)
			dead = append(dead, failing...)
			ready[e.Addr] = ready[e.Addr] || e.Ready && used[e.Addr] && len(failing) == 0
		}
	}
	item.AllEndpoints = len(ready)
	for _, gets := range ready {
		if gets {
			item.ReadyEndpoints++
		}
	}
	return dead
}

// deadPortFaults returns a fault for each port on which a ready endpoint does not respond.
func (l *lister) deadPortFaults(s *source.EndpointSlice, e *source.Endpoint) (out []fault.Fault) {
	if l.DeadEndpoints.Len() == 0 || !e.Ready {
		return nil
	}
	for _, port := range s.Ports {
		at := netip.AddrPortFrom(e.Addr, port.Port)
		if port.Protocol == plan.TCP && l.DeadEndpoints.Has(at) {
			f := l.DeadEndpoints.Faults[at]
			f.ID, f.Severity, f.Message = "endpoint-checks", fault.Warning, at.String()+" does not answer: "+f.Message
			out = append(out, f)
		}
	}
	return out
}

// typeOf returns the type that the addresses and ports of a Service imply, because the sources do not keep spec.type.
func typeOf(s *source.Service) string {
	hasNodePort := func(p source.ServicePort) bool { return p.NodePort != 0 }
	switch {
	case len(s.LoadBalancerIPs) > 0 || s.HealthCheckNodePort != 0:
		return "LoadBalancer"
	case slices.ContainsFunc(s.Ports, hasNodePort):
		return "NodePort"
	}
	return "ClusterIP"
}

func wantedAddrs(s *source.Service) []netip.Addr {
	return append([]netip.Addr{}, slices.Concat(s.ClusterIPs, s.LoadBalancerIPs, s.ExternalIPs)...)
}

func wantedPorts(s *source.Service) []ServiceItemPort {
	out := []ServiceItemPort{}
	for _, p := range s.Ports {
		out = append(out, ServiceItemPort{p.Name, p.Protocol.String(), p.Port, p.NodePort})
	}
	return out
}

func servedAddrs(served []*plan.ServicePort) []netip.Addr {
	out, seen := []netip.Addr{}, map[netip.Addr]bool{}
	for _, sp := range served {
		for _, f := range sp.Frontends {
			if f.Kind != plan.NodePort && !seen[f.Addr] {
				out, seen[f.Addr] = append(out, f.Addr), true
			}
		}
	}
	return out
}

// servedPorts returns each port once, even if it has a ServicePort in both address families.
func servedPorts(served []*plan.ServicePort) []ServiceItemPort {
	out := []ServiceItemPort{}
	for i, sp := range served {
		if i == 0 || sp.Name != served[i-1].Name {
			out = append(out, ServiceItemPort{Name: sp.Name.Port, Protocol: sp.Name.Protocol.String()})
		}
		port := &out[len(out)-1]
		for _, f := range sp.Frontends {
			if f.Kind == plan.NodePort {
				port.NodePort = f.Port
			} else {
				port.Port = f.Port
			}
		}
	}
	return out
}

// Filter returns the Services in a namespace, or one Service ("namespace/name"). If that Service does not exist, Filter
// returns an error.
func (v ServiceList) Filter(filter string) (ServiceList, error) {
	namespace, name, one := strings.Cut(filter, "/")
	if namespace == "" || one && (name == "" || strings.Contains(name, "/")) {
		return v, argumentError{fmt.Errorf("%q is not of the form NAMESPACE or NAMESPACE/NAME", filter)}
	}
	var known []string
	for i := range v.Items {
		known = append(known, v.Items[i].FullName())
	}
	v.Faults = nil
	v = v.where(func(i *ServiceItem) bool { return i.Namespace == namespace && (!one || i.Name == name) })
	if one && len(v.Items) == 0 {
		return v, unknownService(filter, known)
	}
	return v, nil
}

// Problems returns the Services whose state is not "ok".
func (v ServiceList) Problems() ServiceList {
	return v.where(func(i *ServiceItem) bool { return i.State != ServiceIsServed })
}

func (v ServiceList) where(fits func(*ServiceItem) bool) ServiceList {
	all := v.Items
	v.Items = []ServiceItem{}
	for i := range all {
		if fits(&all[i]) {
			v.Items = append(v.Items, all[i])
		}
	}
	return v
}

// FullName returns "namespace/name".
func (i *ServiceItem) FullName() string { return i.Namespace + "/" + i.Name }
