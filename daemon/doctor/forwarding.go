package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

const (
	forward4    = "net.ipv4.ip_forward"
	forward6    = "net.ipv6.conf.all.forwarding"
	interfaces6 = "net.ipv6.conf."
)

// sysctlPath returns the path of a sysctl's file. The key must not contain an interface name, because interface names
// may contain dots.
func sysctlPath(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }

// interfaceSetting returns the file path of an interface's sysctl, and the sysctl's name for sysctl(8).
func interfaceSetting(device, key string) (path, name string) {
	path = sysctlPath(interfaces6) + device + "/" + key
	if name = interfaces6 + device + "." + key; strings.Contains(device, ".") {
		name = strings.TrimPrefix(path, "/proc/sys/")
	}
	return path, name
}

func (h *Host) number(path string) (int, error) {
	text, err := h.Read(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func set(key string, value any) string {
	return "sysctl -w " + quote(fmt.Sprintf("%s=%v", key, value))
}

// plainWord matches a word that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[\w./,=:@+-]+$`)

// quote quotes a word for a shell if necessary, because an interface may have a name such as "a;reboot".
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func checkForwarding4(_ context.Context, h *Host) []fault.Fault {
	return h.checkForwarding(plan.IPv4, forward4, func() string { return set(forward4, 1) })
}

// checkForwarding6 checks whether the kernel forwards IPv6 connections. If an interface has accept_ra=1, the fix also
// sets accept_ra to 2. A router with accept_ra=1 ignores router advertisements (Linux, ip-sysctl) and loses its
// advertised default route.
func checkForwarding6(_ context.Context, h *Host) []fault.Fault {
	return h.checkForwarding(plan.IPv6, forward6, func() string {
		var commands []string
		links, _ := h.AdvertisedLinks() // after an error, the fix does not set accept_ra
		for _, device := range links {
			path, name := interfaceSetting(device, "accept_ra")
			if n, err := h.number(path); err == nil && n == 1 {
				commands = append(commands, set(name, 2))
			}
		}
		return strings.Join(append(commands, set(forward6, 1)), " && ")
	})
}

func (h *Host) serves(family plan.Family) bool {
	return slices.ContainsFunc(h.servicePorts(), func(s *plan.ServicePort) bool { return s.Family == family })
}

// checkForwarding checks whether the kernel forwards the connections that the plan requires this host to forward.
func (h *Host) checkForwarding(family plan.Family, key string, fix func() string) []fault.Fault {
	if !h.serves(family) {
		return nil
	}
	value, err := h.number(sysctlPath(key))
	if err != nil {
		return []fault.Fault{warning("", "cannot read %s: %v", key, err)}
	}
	needed, useful := h.forwardedFrontends(family)
	switch {
	case value != 0:
		return []fault.Fault{ok("%s is %d", key, value)}
	case needed != "":
		all := fault.Scope{Clients: fault.Forwarded, To: plan.AllAddresses(family)}
		return []fault.Fault{problem(fix(),
			"%s is 0: this host does not forward connections from other hosts, such as those to %s",
			key, needed).WithScope(all)}
	case useful != "":
		return []fault.Fault{warning(fix(),
			"%s is 0: this host does not forward connections from other hosts, such as those to %s; this host's "+
				"own connections work",
			key, useful)}
	}
	return []fault.Fault{ok("%s is 0, and no Service needs forwarding", key)}
}

// forwardedFrontends describes at most one frontend whose connections this host forwards. The first result describes a
// frontend that clients can reach only through this host. If there is none, the second result describes a frontend that
// other hosts may reach with this host as their router.
func (h *Host) forwardedFrontends(family plan.Family) (needed, useful string) {
	for _, svc := range h.servicePorts() {
		if svc.Family != family {
			continue
		}
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			switch who, must := h.describeClients(svc, f); {
			case must:
				return fmt.Sprintf("%s of %s%s", describe(f), svc.Name, who), ""
			case who != "" && useful == "":
				useful = fmt.Sprintf("%s of %s", describe(f), svc.Name)
			}
		}
	}
	return "", useful
}

// describeClients describes the clients that reach endpoints on other hosts through a frontend, or returns "" if there
// are none. The second result reports whether these clients always connect through this host.
func (h *Host) describeClients(svc *plan.ServicePort, f *plan.Frontend) (who string, must bool) {
	n := h.node()
	if h.isRemote(svc, f.Routes[plan.FromPod]) &&
		len(plan.FilterByFamily(n.PodSources, svc.Family))+len(n.PodInterfaces) > 0 {
		return " from pods", true
	}
	if !h.isRemote(svc, f.Routes[plan.FromOutside]) {
		return "", false
	}
	if f.Kind == plan.NodePort {
		for _, a := range n.NodePortAddrs {
			if plan.FamilyOf(a) == svc.Family {
				return " from outside", true
			}
		}
		return "", false
	}
	return " from outside", h.owns(f.Addr)
}

// describe returns text such as "NodePort 30080" or "ClusterIP 10.96.0.10:80".
func describe(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return fmt.Sprintf("%s %d", f.Kind, f.Port)
	}
	return fmt.Sprintf("%s %s", f.Kind, netip.AddrPortFrom(f.Addr, f.Port))
}
