package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// vip is an address that clients use to reach a Service.
type vip struct {
	addr netip.Addr
	kind plan.FrontendKind
	// isHostAddr reports whether addr is an external IP or a load-balancer address that is also an address of this
	// host.
	isHostAddr bool
}

// addrFields maps each kind of address to the Service field that lists it.
var addrFields = [...]string{
	plan.ClusterIP:      "spec.clusterIPs",
	plan.ExternalIP:     "spec.externalIPs",
	plan.LoadBalancerIP: "status.loadBalancer.ingress",
}

// vips returns the addresses that the Service may use, in sorted order. If the Service lists an address in several
// fields, vips returns it only as the highest-ranking kind. vips adds a fault for each address that the Service may not
// use, and skips address families that Edgeway does not serve.
func (p *Planner) vips(s *source.Service, found *source.Faults) []vip {
	vips := make([]vip, 0, len(s.ClusterIPs)+len(s.LoadBalancerIPs)+len(s.ExternalIPs))
	add := func(kind plan.FrontendKind, addrs []netip.Addr) {
		for _, a := range addrs {
			if !p.env.serves(plan.FamilyOf(a)) || !hasFamily(s, plan.FamilyOf(a)) {
				continue
			}
			if why := cmp.Or(p.apiServerRefusal(s, a), p.refusal(s, kind, a)); why != "" {
				found.Addf(addrFields[kind], "%s %s", a, why)
				continue
			}
			ofHost := hasAddr(p.env.hostAddrs, a)
			if f := p.allowlist(kind); kind != plan.ClusterIP && !s.Manifest && !f.allows(a, ofHost) {
				if found.HasRoom() {
					found.Add(f.refusal(s.Key(), addrFields[kind], a, ofHost))
				}
				continue
			}
			vips = append(vips, vip{a, kind, kind != plan.ClusterIP && ofHost})
		}
	}
	add(plan.ClusterIP, s.ClusterIPs)
	add(plan.LoadBalancerIP, s.LoadBalancerIPs)
	add(plan.ExternalIP, s.ExternalIPs)
	slices.SortFunc(vips, func(a, b vip) int {
		return cmp.Or(a.addr.Compare(b.addr), ranks[a.kind]-ranks[b.kind])
	})
	return slices.CompactFunc(vips, func(a, b vip) bool { return a.addr == b.addr })
}

// refusal returns the reason why no configuration can allow the address, or "" if there is no such reason. An address
// on a dummy device can be a ClusterIP, because some programs, such as kube-proxy in IPVS mode, bind all ClusterIPs to
// a dummy device.
func (p *Planner) refusal(s *source.Service, kind plan.FrontendKind, a netip.Addr) string {
	switch {
	case hasAddr(p.env.broadcasts, a):
		return "is the broadcast or network address of one of this host's networks"
	case hasAddr(p.env.gateways, a):
		return "is a default gateway of this host"
	case kind == plan.ClusterIP && hasAddr(p.env.realAddrs, a):
		return "is an address of this host"
	case kind == plan.ClusterIP:
		return ""
	case leadsTo(a, p.env.apiServers):
		return "is the API server's address"
	case kind == plan.ExternalIP && contains(p.env.serviceCIDRs, a):
		return "is in a range reserved for ClusterIPs"
	case s.Manifest:
		return ""
	case leadsTo(a, p.env.nameServers):
		return "is a name server of this host"
	}
	return ""
}

// RefusedAddressID is the ID of the fault for an address that the configuration does not allow.
const RefusedAddressID = "refused-address"

// allowlist is a configuration key and the addresses that it allows for Services from the API server. A Service's
// author sets the external IPs, and a controller sets the load-balancer addresses. A Service at an address of this host
// would intercept connections to the host's programs, so the operator must allow the address (CVE-2020-8554). Services
// from manifests need no permission, because only root can write manifests.
type allowlist struct {
	key string
	config.HostRanges
}

func (p *Planner) allowlist(kind plan.FrontendKind) allowlist {
	if kind == plan.LoadBalancerIP {
		return allowlist{"proxy.allow_load_balancer_ips", p.opts.Proxy.AllowLoadBalancers}
	}
	return allowlist{"proxy.allow_external_ips", p.opts.Proxy.AllowExternalIPs}
}

func (f allowlist) allows(a netip.Addr, ofHost bool) bool {
	return ofHost && f.Host || !ofHost && contains(f.Prefixes, a)
}

// refusal returns a Notice about an address that the key does not allow. The Notice's fix is to allow the address.
func (f allowlist) refusal(object source.Key, field string, a netip.Addr, ofHost bool) fault.Fault {
	why, items := "is not in a range of", []string{}
	for _, r := range f.Prefixes {
		items = append(items, strconv.Quote(r.String()))
	}
	if ofHost {
		why = `is an address of this host, and "host" is not in`
	} else {
		items = append(items, strconv.Quote(netip.PrefixFrom(a, a.BitLen()).String()))
	}
	if ofHost || f.Host {
		items = append(items, `"host"`)
	}
	out := source.FaultOf(object, field, "%s %s %s", a, why, f.key)
	out.ID, out.Severity, out.Fix = RefusedAddressID, fault.Notice,
		fmt.Sprintf("%s = [%s]", f.key, strings.Join(items, ", "))
	return out
}

// apiServerRefusal returns a reason if the Service must not use the address because the address belongs to the API
// server, or "" otherwise. Only default/kubernetes may use an address of the API server.
func (p *Planner) apiServerRefusal(s *source.Service, a netip.Addr) string {
	if leadsTo(a, p.env.apiServers) && (s.Namespace != "default" || s.Name != "kubernetes") {
		return "is the API server's address"
	}
	return ""
}

func hasFamily(s *source.Service, f plan.Family) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return plan.FamilyOf(a) == f })
}

// isReachable reports whether the Service has a ClusterIP in a family that Edgeway serves. An unreachable Service needs
// no NodePort.
func (p *Planner) isReachable(s *source.Service) bool {
	return slices.ContainsFunc(p.env.families, func(f plan.Family) bool { return hasFamily(s, f) })
}

func (p *Planner) eachRequest(s *source.Service, f func(exclusivePort, request)) {
	p.requestBuffer = p.requestBuffer[:0]
	// If the Service causes a panic, planService leaves the Service out of the plan.
	_ = contain.Call(func() error {
		if p.opts.beforeRequests != nil {
			p.opts.beforeRequests(s)
		}
		p.visitRequests(s, func(c exclusivePort, b request) {
			p.requestBuffer = append(p.requestBuffer, portRequest{c, b})
		})
		return nil
	})
	for _, c := range p.requestBuffer {
		f(c.exclusivePort, c.request)
	}
}

type portRequest struct {
	exclusivePort
	request
}

func (p *Planner) visitRequests(s *source.Service, f func(exclusivePort, request)) {
	if p.budget.excludes(nameOf(s)) {
		return
	}
	vips, reachable := p.vips(s, nil), p.isReachable(s)
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, v := range vips {
			if p.vipPortRefusal(v, port.Protocol, port.Port) == "" {
				f(exclusivePort{v.addr, port.Protocol, port.Port}, request{s, v.kind})
			}
		}
		if port.NodePort != 0 && reachable && p.portRefusal(s, nodePortOf(port)) == "" {
			f(nodePortOf(port), request{s, plan.NodePort})
		}
	}
	if c, ok := healthCheckPort(s); ok && p.portRefusal(s, c) == "" {
		f(c, request{s, plan.NodePort})
	}
}

func nodePortOf(port *source.ServicePort) exclusivePort {
	return exclusivePort{protocol: port.Protocol, port: port.NodePort}
}

// healthCheckPort returns the exclusivePort for the healthCheckNodePort. ok is false if the Service has no health check
// port or also uses that port as a NodePort.
func healthCheckPort(s *source.Service) (c exclusivePort, ok bool) {
	c = exclusivePort{protocol: plan.TCP, port: s.HealthCheckNodePort}
	own := func(p source.ServicePort) bool { return nodePortOf(&p) == c }
	return c, c.port != 0 && !slices.ContainsFunc(s.Ports, own)
}

// owns reports whether the Service owns c. If not, owns records the reason as a fault in found.
func (p *Planner) owns(s *source.Service, c exclusivePort, field string, found *source.Faults) bool {
	if !c.addr.IsValid() {
		if why := p.portRefusal(s, c); why != "" {
			found.Addf(field, "%s", why)
			return false
		}
	}
	owner := p.owners.owner[c].service
	if owner != s && found.HasRoom() { // the arguments of Addf would be allocated for each fault that has no room
		found.Add(source.FaultOf(found.Object, field, "%s belongs to Service %s/%s", c, owner.Namespace, owner.Name))
	}
	return owner == s
}

// vipPortRefusal returns the reason why no Service may use the port at the address, or "" if there is no such reason.
// At an address of this host, a frontend takes precedence over a listening program. A load balancer that tests this
// host's health would therefore receive an endpoint's response.
func (p *Planner) vipPortRefusal(v vip, protocol plan.Protocol, port uint16) string {
	if !v.isHostAddr || protocol != plan.TCP {
		return ""
	}
	const at = "%s is an address of this host, where "
	switch key := p.opts.OwnPorts[port]; {
	case key != "":
		return fmt.Sprintf(at+"%s uses port %d", v.addr, key, port)
	case slices.Contains(p.env.apiPorts, port):
		return fmt.Sprintf(at+"the API server uses port %d", v.addr, port)
	case p.health.ports[port] > 0:
		return fmt.Sprintf(at+"port %d is a health check port", v.addr, port)
	}
	return ""
}

// healthPorts records the health check ports, and the Services that cannot use a health check port at an address of
// this host.
type healthPorts struct {
	// ports maps each health check port to the number of Services that use it.
	ports map[uint16]int
	// hostAddrServices holds the Services with an external IP or a load-balancer address that is an address of this
	// host.
	hostAddrServices map[tracker.Name]struct{}
}

func newHealthPorts() healthPorts {
	return healthPorts{map[uint16]int{}, map[tracker.Name]struct{}{}}
}

// countPorts records the host ports that the Service requests, or removes them from the record if by is -1.
func (p *Planner) countPorts(s *source.Service, by int) {
	if port := p.allowedHealthCheckPort(s); port != 0 {
		add(p.health.ports, port, by)
	}
	p.countOutOfRange(s, by)
	ofHost := func(vips []netip.Addr) bool {
		return slices.ContainsFunc(vips, func(a netip.Addr) bool { return hasAddr(p.env.hostAddrs, a) })
	}
	if by < 0 {
		delete(p.health.hostAddrServices, nameOf(s))
	} else if ofHost(s.ExternalIPs) || ofHost(s.LoadBalancerIPs) {
		p.health.hostAddrServices[nameOf(s)] = struct{}{}
	}
}

func (p *Planner) allowedHealthCheckPort(s *source.Service) uint16 {
	if c, ok := healthCheckPort(s); ok && p.portRefusal(s, c) == "" {
		return c.port
	}
	return 0
}

// healthPortConflicts returns the Services that lose or gain a port at an address of this host because the changed
// Services add or remove health check ports.
func (p *Planner) healthPortConflicts() (names []tracker.Name) {
	if len(p.health.hostAddrServices) == 0 {
		return nil
	}
	change := map[uint16]int{}
	for _, name := range p.snap.Changed {
		if old := p.specBefore(name); old != nil {
			change[p.allowedHealthCheckPort(old)]--
		}
		if fresh := p.spec(name); fresh != nil {
			change[p.allowedHealthCheckPort(fresh)]++
		}
	}
	delete(change, 0)
	toggles := func(port source.ServicePort) bool {
		count := p.health.ports[port.Port]
		return (count > 0) != (count+change[port.Port] > 0)
	}
	for name := range p.health.hostAddrServices {
		s := p.spec(name)
		if s != nil && s == p.specBefore(name) && slices.ContainsFunc(s.Ports, toggles) {
			names = append(names, name)
		}
	}
	return names
}

// leadsTo reports whether sorted contains the address a, or the IPv4 address that a represents under NAT64. With
// 464XLAT, this host's connections to an IPv4 address go to the corresponding IPv6 address.
func leadsTo(a netip.Addr, sorted []netip.Addr) bool {
	return hasAddr(sorted, a) || hasAddr(sorted, source.TranslateNAT64(a))
}
