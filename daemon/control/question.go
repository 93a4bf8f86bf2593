package control

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

type question struct {
	packet plan.Packet
	// hop is the next hop on the kernel's route to the destination, or nil if another host sends the packet. routeErr
	// is the error from a failed route lookup.
	hop      *nodeinfo.NextHop
	routeErr error
}

// unknownInterface stands for the input interface of a packet from another host if the user specified no interface. The
// name "?" should not match any pattern for pod interfaces.
const unknownInterface = "?"

// parseQuestion parses the arguments of Explain.
func (s *Explainer) parseQuestion(p *plan.Plan, src, dst, proto string) (*question, error) {
	from, err := parseSource(p, src)
	if err != nil {
		return nil, argumentError{err}
	}
	to, err := parseTarget(dst, proto)
	if err != nil {
		return nil, argumentError{err}
	}
	q := &question{packet: plan.Packet{Src: from.addr, InInterface: from.iface}}
	if q.packet.Protocol, q.packet.Dst, err = s.locate(p, from, to); err != nil {
		return nil, err
	}
	if from.iface == "" {
		err = q.findRoute(p, s.NextHop)
	}
	if err == nil && plan.FamilyOf(q.packet.Src) != plan.FamilyOf(q.packet.Dst.Addr()) {
		err = argumentError{fmt.Errorf("source %s and destination %s belong to different address families",
			q.packet.Src, q.packet.Dst.Addr())}
	}
	return q, err
}

// findRoute looks up the kernel's route for a packet that this host sends. If the user specified no source address,
// findRoute also determines the source address. If there is no route, the source address does not matter, and findRoute
// uses any of this host's addresses in the destination's family.
func (q *question) findRoute(p *plan.Plan, hop func(netip.Addr) (nodeinfo.NextHop, error)) error {
	found, err := hop(q.packet.Dst.Addr())
	if err != nil {
		q.routeErr = err
	} else {
		q.hop = &found
	}
	if !q.packet.Src.IsValid() {
		q.packet.Src = found.Source
	}
	if q.packet.Src.IsValid() {
		return nil
	}
	family := plan.FamilyOf(q.packet.Dst.Addr())
	for _, a := range p.Node.HostAddrs {
		if plan.FamilyOf(a) == family && (!q.packet.Src.IsValid() || q.packet.Src.IsLoopback()) {
			q.packet.Src = a
		}
	}
	if !q.packet.Src.IsValid() {
		return fmt.Errorf("this host has no %s address", family)
	}
	return nil
}

// origin is the source of a connection. If iface is "", this host is the source. If addr is invalid, the kernel chooses
// the source address.
type origin struct {
	addr  netip.Addr
	iface string
}

func parseSource(p *plan.Plan, src string) (origin, error) {
	if src == "host" {
		return origin{}, nil
	}
	addr, iface, _ := strings.Cut(src, "@")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return origin{}, fmt.Errorf(`source %q is neither "host" nor of the form ADDRESS or ADDRESS@INTERFACE`, src)
	}
	a = a.Unmap()
	if iface == "" && !slices.Contains(p.Node.HostAddrs, a) {
		iface = unknownInterface
	}
	return origin{a, iface}, nil
}

// target is the destination of a connection: an address, a port on this host's loopback interface, or a Service.
type target struct {
	protocol plan.Protocol  // protocol is 0 if the user specified no protocol
	addr     netip.AddrPort // port 0 means the only Service port at the address
	loopback bool           // addr contains only a port
	service  tracker.Name   // an empty namespace means the only Service with this name
	port     string         // port is the number or name of a Service port, or "" if the user specified no port
}

func parseTarget(dst, proto string) (to target, err error) {
	rest := dst
	if i := strings.LastIndexByte(dst, '/'); i >= 0 && (strings.ContainsAny(dst[:i], ":/") || isAddr(dst[:i])) {
		rest, proto = dst[:i], dst[i+1:]
	}
	if proto != "" {
		protocol, ok := plan.ParseProtocol(strings.ToUpper(proto))
		if !ok {
			return to, fmt.Errorf("protocol %q is not tcp, udp or sctp", proto)
		}
		to.protocol = protocol
	}
	wrong := fmt.Errorf("destination %q is not of the form ADDRESS[:PORT], [ADDRESS]:PORT for IPv6, localhost:PORT or "+
		"[NAMESPACE/]NAME[:PORT]", dst)
	if namespace, name, ok := strings.Cut(rest, "/"); ok {
		name, to.port, _ = strings.Cut(name, ":")
		to.service = tracker.Name{Namespace: namespace, Name: name}
		if namespace == "" || name == "" {
			return to, wrong
		}
		return to, nil
	}
	if port, ok := strings.CutPrefix(rest, "localhost:"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return to, wrong
		}
		to.loopback, to.addr = true, netip.AddrPortFrom(netip.Addr{}, uint16(n))
		return to, nil
	}
	if to.addr, err = parseAddr(rest); err == nil {
		return to, nil
	}
	to.service.Name, to.port, _ = strings.Cut(rest, ":")
	if rest == "localhost" || len(validation.IsDNS1123Label(to.service.Name)) > 0 {
		return to, wrong
	}
	return to, nil
}

// parseAddr parses an address with an optional port, and returns port 0 if the port is missing.
func parseAddr(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), 0), nil
	}
	at, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err
}

func isAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// locate returns the protocol, address and port that a client uses to connect to a target.
func (s *Explainer) locate(p *plan.Plan, from origin, to target) (plan.Protocol, netip.AddrPort, error) {
	switch protocol := cmp.Or(to.protocol, plan.TCP); {
	case to.service.Name != "":
		if to.service.Namespace == "" {
			var err error
			if to.service, err = s.findService(to.service.Name); err != nil {
				return 0, netip.AddrPort{}, err
			}
		}
		return s.locateService(p, from, to)
	case !to.loopback && to.addr.Port() == 0:
		return locatePort(p, to)
	case !to.loopback:
		return protocol, to.addr, nil
	case from.addr.Is6():
		return protocol, netip.AddrPortFrom(netip.IPv6Loopback(), to.addr.Port()), nil
	default:
		return protocol, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.addr.Port()), nil
	}
}

// findService returns the Service called name, or an error if no Service or several Services have that name.
func (s *Explainer) findService(name string) (found tracker.Name, err error) {
	known := s.Services()
	var of []string
	for _, full := range known {
		if namespace, n, _ := strings.Cut(full, "/"); n == name {
			found = tracker.Name{Namespace: namespace, Name: name}
			of = append(of, full)
		}
	}
	switch len(of) {
	case 0:
		return found, unknownService(name, known)
	case 1:
		return found, nil
	}
	return found, argumentError{
		fmt.Errorf("several Services are named %s: specify one of %s", name, strings.Join(of, ", ")),
	}
}

// locatePort returns the only Service port at an address, or an error if there is no such port or more than one. If the
// target specifies no protocol, locatePort prefers TCP.
func locatePort(p *plan.Plan, to target) (plan.Protocol, netip.AddrPort, error) {
	found := map[plan.Protocol][]netip.AddrPort{}
	for _, sp := range p.Services {
		if to.protocol != 0 && to.protocol != sp.Name.Protocol {
			continue
		}
		for at := range sp.Destinations(p.Node) {
			if at.Addr() == to.addr.Addr() {
				found[sp.Name.Protocol] = append(found[sp.Name.Protocol], at)
			}
		}
	}
	for _, protocol := range []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP} {
		switch all := found[protocol]; len(all) {
		case 0:
		case 1:
			return protocol, all[0], nil
		default:
			return 0, netip.AddrPort{}, argumentError{fmt.Errorf(
				"several Service ports use the address %s: specify one of %v", to.addr.Addr(), all)}
		}
	}
	return 0, netip.AddrPort{}, argumentError{fmt.Errorf("no Service has a port at %s: specify a port, "+
		"as in ADDRESS:PORT",
		to.addr.Addr())}
}

// locateService returns the requested port of a Service or, if the target names no port, the Service's only port. If
// the target specifies no protocol, locateService prefers TCP. For a client outside the cluster, locateService prefers
// an address for external clients. For this host and its pods, locateService prefers the ClusterIP.
func (s *Explainer) locateService(p *plan.Plan, from origin, to target) (plan.Protocol, netip.AddrPort, error) {
	var ports []string
	var fit []*plan.ServicePort
	for _, sp := range p.Services {
		if sp.Name.Namespace != to.service.Namespace || sp.Name.Name != to.service.Name {
			continue
		}
		ports = append(ports, portText(sp))
		if (!from.addr.IsValid() || plan.FamilyOf(from.addr) == sp.Family) && to.fits(sp) {
			fit = append(fit, sp)
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	isTCP := func(sp *plan.ServicePort) bool { return sp.Name.Protocol == plan.TCP }
	if to.protocol == 0 && slices.ContainsFunc(fit, isTCP) {
		fit = slices.DeleteFunc(fit, func(sp *plan.ServicePort) bool { return !isTCP(sp) })
	}
	name := to.service.Namespace + "/" + to.service.Name
	switch {
	case len(ports) == 0:
		return 0, netip.AddrPort{}, s.unservedError(to.service)
	case len(fit) == 0:
		return 0, netip.AddrPort{},
			fmt.Errorf("no port of Service %s matches the destination and the source's address family (ports: %s)",
				name, strings.Join(ports, ", "))
	case fit[0].Name != fit[len(fit)-1].Name:
		return 0, netip.AddrPort{}, fmt.Errorf("Service %s has several ports (%s): specify a port, as in "+
			"%s:PORT/PROTOCOL", name, strings.Join(ports, ", "), name)
	}
	at, ok := to.choose(p, fit[0], from)
	if !ok {
		return 0, netip.AddrPort{}, fmt.Errorf("Edgeway serves no address of Service %s: see edgeway "+
			"services %s", name, name)
	}
	return fit[0].Name.Protocol, at, nil
}

// unservedError returns the error for a Service that is not in the plan.
func (s *Explainer) unservedError(name tracker.Name) error {
	if snap := s.State.Snapshot; snap != nil && snap.Find(name) != nil {
		return fmt.Errorf("Edgeway serves no address of Service %s/%s: see edgeway services %s/%s",
			name.Namespace, name.Name, name.Namespace, name.Name)
	}
	return unknownService(name.Namespace+"/"+name.Name, s.Services())
}

func unknownService(name string, known []string) error {
	message := fmt.Sprintf("Service %s does not exist, or has no ClusterIP", name)
	if near, ok := text.Suggest(name, known); ok {
		message += "; did you mean " + near + "?"
	}
	return errors.New(message)
}

// portsAt returns the names and ports of the Services whose ClusterIP is addr.
func portsAt(p *plan.Plan, addr netip.Addr) string {
	var names, ports []string
	for _, sp := range p.Services {
		if slices.ContainsFunc(sp.Frontends,
			func(f plan.Frontend) bool { return f.Kind == plan.ClusterIP && f.Addr == addr }) {
			names = append(names, sp.Name.Namespace+"/"+sp.Name.Name)
			ports = append(ports, portText(sp))
		}
	}
	return strings.Join(slices.Compact(names), ", ") + " has " + strings.Join(ports, ", ")
}

func (t target) fits(sp *plan.ServicePort) bool {
	if t.protocol != 0 && t.protocol != sp.Name.Protocol {
		return false
	}
	return t.port == "" || t.port == sp.Name.Port ||
		slices.ContainsFunc(sp.Frontends, func(f plan.Frontend) bool { return t.port == strconv.Itoa(int(f.Port)) })
}

// choose returns the address that the client uses to connect to the ServicePort.
func (t target) choose(p *plan.Plan, sp *plan.ServicePort, from origin) (best netip.AddrPort, ok bool) {
	// ranks holds the rank of each frontend kind (ClusterIP, ExternalIP, LoadBalancerIP, NodePort). Rank 0 is best.
	ranks := [...]int{0, 2, 1, 3}
	if p.Node.Origin(from.addr, from.iface) == plan.FromOutside {
		ranks = [...]int{3, 1, 0, 2}
	}
	least := len(ranks)
	for at, f := range sp.Destinations(p.Node) {
		if t.port != "" && t.port != sp.Name.Port && t.port != strconv.Itoa(int(f.Port)) {
			continue
		}
		if rank := ranks[f.Kind]; rank < least {
			best, least = at, rank
		}
	}
	return best, least < len(ranks)
}

// portText returns "80/TCP", or "80/TCP (web)" if the port has a name. The port number comes from the ServicePort's
// first frontend, which is a NodePort only if the ServicePort has no frontend of another kind.
func portText(sp *plan.ServicePort) string {
	text := sp.Name.Protocol.String()
	if len(sp.Frontends) > 0 {
		text = fmt.Sprintf("%d/%s", sp.Frontends[0].Port, text)
	}
	if sp.Name.Port != "" {
		text += " (" + sp.Name.Port + ")"
	}
	return text
}
