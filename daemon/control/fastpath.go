package control

import (
	"fmt"
	"net/netip"
	"strings"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/text"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// StatusFastPath is the way past the rules.
type StatusFastPath struct {
	// Missing says why there is none; empty: there is.
	Missing  string              `json:"missing,omitempty"`
	Devices  []string            `json:"devices"`
	Services []StatusFastService `json:"services"`
	// Err says that the kernel did not tell the connections.
	Err string `json:"error,omitempty"`
}

// StatusFastService is a ServicePort that opted in, with its connections that are off the rules now.
type StatusFastService struct {
	Name        string `json:"name"`
	Family      string `json:"family"`
	Connections int    `json:"connections"`
	// Packets and Bytes are absent where the kernel does not count them.
	Packets uint64 `json:"packets,omitempty"`
	Bytes   uint64 `json:"bytes,omitempty"`
}

// Add takes over what a Proxier tells.
func (s *StatusFastPath) Add(state proxiers.Offloading) {
	s.Devices = append([]string{}, state.Devices...)
	s.Services = []StatusFastService{}
	for _, o := range state.Services {
		s.Services = append(s.Services, StatusFastService{
			Name: o.Service.Name.String(), Family: o.Service.Family.String(), Connections: o.Flows, Packets: o.Packets,
			Bytes: o.Bytes,
		})
	}
}

// maxFastServices is how many ServicePorts the text has.
const maxFastServices = 20

func (s Status) fastPath(p *printer) {
	f := s.FastPath
	if f == nil || f.Missing != "" { // a condition says it
		return
	}
	total := 0
	for i := range f.Services {
		total += f.Services[i].Connections
	}
	switch {
	case len(f.Services) == 0:
		p.line("fast path", "no Service has opted in")
		return
	case f.Err != "":
		p.line("fast path", "%s; their connections are not known: %s", text.Count(len(f.Services), "ServicePort"),
			f.Err)
	default:
		p.line("fast path", "%s of %s, between %s", text.Count(total, "connection"),
			text.Count(len(f.Services), "ServicePort"), listDevices(f.Devices))
	}
	for i, svc := range f.Services {
		if i == maxFastServices {
			p.line("", "and %d more", len(f.Services)-i)
			return
		}
		text := fmt.Sprintf("%s (%s): %s", svc.Name, svc.Family, text.Count(svc.Connections, "connection"))
		if svc.Packets > 0 {
			text += fmt.Sprintf(", %d packets, %d bytes", svc.Packets, svc.Bytes)
		}
		p.line("", "%s", text)
	}
}

// maxDevices is how many names of devices the text has.
const maxDevices = 8

func listDevices(names []string) string {
	if more := len(names) - maxDevices; more > 0 {
		return strings.Join(names[:maxDevices], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return list(names, "no device")
}

// FastPath says whether connections of an origin to a ServicePort leave the rules, and why, by the ways to both ends;
// empty: there is nothing to say.
type FastPath func(svc *plan.ServicePort, origin plan.Origin, ways []nodeinfo.Way) string

// fastPath says whether the connection leaves the rules; empty: nobody asks.
func (s *Subject) fastPath(d plan.Decision, src netip.Addr) string {
	if s.FastPath == nil || d.Service == nil || d.Verdict != plan.Forward || src.IsLoopback() {
		return ""
	}
	var ways []nodeinfo.Way
	add := func(to netip.Addr) {
		if w, err := s.Way(to); err == nil {
			ways = append(ways, w)
		}
	}
	if d.Origin != plan.FromHost {
		add(src)
	}
	for _, e := range d.Endpoints {
		add(e.Addr.Addr())
	}
	return s.FastPath(d.Service, d.Origin, ways)
}
