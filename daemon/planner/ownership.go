package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// claim is what only one Service can have: an address and port, or, with an invalid address, a port of
// the host (NodePort, healthCheckNodePort).
type claim struct {
	addr     netip.Addr
	protocol plan.Protocol
	port     uint16
}

// String gives "192.0.2.1:80/TCP" or "port 30080/TCP".
func (c claim) String() string {
	if !c.addr.IsValid() {
		return fmt.Sprintf("port %d/%s", c.port, c.protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(c.addr, c.port), c.protocol)
}

// privileged reports whether the claim is a port of the host that is kept for its own services, sshd above all.
func (c claim) privileged() bool { return !c.addr.IsValid() && c.port < 1024 }

// programs stands for all other programs of this host, which have the ports that they listen on. They come before any
// Service, but as any other one they take nothing from who has it: a privileged port excepted, as sshd may start later
// than the daemon, and an ordering of units would have the last-known Services wait for the network, as sshd does.
var programs = &source.Service{}

// ownership knows who has what. A Service claims each claim once.
//
// Who has a claim keeps it for as long as it claims it. A claim that nobody has, or that its owner has left, is
// open until settle: then it is the first one's by precedence, and no older Service that comes later takes it away.
type ownership struct {
	owner map[claim]*source.Service
	// rivals are those that want what another one has; no entry is empty.
	rivals map[claim][]*source.Service
	// open has who had each open claim, an empty name if nobody had. With allOpen all claims are open.
	open    map[claim]tracker.Name
	allOpen bool
}

// newOwnership has all claims open.
func newOwnership() ownership {
	return ownership{owner: map[claim]*source.Service{}, rivals: map[claim][]*source.Service{}, allOpen: true}
}

// add enters a claim.
func (o *ownership) add(c claim, s *source.Service) {
	owner := o.owner[c]
	holder, open := o.open[c]
	switch {
	case owner == nil:
		o.owner[c] = s
		if !o.allOpen {
			o.open[c] = holder
		}
	case (open || o.allOpen) && before(c, s, owner, holder), s == programs && c.privileged():
		if !open && !o.allOpen {
			o.open[c] = nameOf(owner)
		}
		o.owner[c] = s
		o.rivals[c] = append(o.rivals[c], owner)
	default:
		o.rivals[c] = append(o.rivals[c], s)
	}
}

// remove undoes add. It opens a claim that s had.
func (o *ownership) remove(c claim, s *source.Service) {
	rivals := o.rivals[c]
	if o.owner[c] != s {
		o.setRivals(c, without(rivals, s))
		return
	}
	if _, open := o.open[c]; !open {
		o.open[c] = nameOf(s)
	}
	if len(rivals) == 0 {
		delete(o.owner, c)
		return
	}
	heir := slices.MinFunc(rivals, comparePrecedence)
	o.owner[c] = heir
	o.setRivals(c, without(rivals, heir))
}

// restore gives a claim back to the Service that had it, if that still claims it.
func (o *ownership) restore(c claim, holder tracker.Name) {
	if o.owner[c] == programs && c.privileged() {
		return
	}
	rivals := o.rivals[c]
	i := slices.IndexFunc(rivals, func(s *source.Service) bool { return nameOf(s) == holder })
	if i >= 0 {
		o.owner[c], rivals[i] = rivals[i], o.owner[c]
	}
}

// settle closes all claims, and gives the Services for which the answer to "who has it" has changed.
func (o *ownership) settle() (disturbed []tracker.Name) {
	for c, holder := range o.open {
		owner := o.owner[c]
		if owner == nil || nameOf(owner) == holder {
			continue
		}
		disturbed = append(disturbed, nameOf(owner))
		for _, s := range o.rivals[c] {
			disturbed = append(disturbed, nameOf(s))
		}
	}
	o.open, o.allOpen = map[claim]tracker.Name{}, false
	return disturbed
}

// contested gives the claims that several Services want, with their owners.
func (o *ownership) contested() []source.Holding {
	var out []source.Holding
	for c := range o.rivals {
		if o.owner[c] == programs {
			continue
		}
		name := nameOf(o.owner[c])
		out = append(out, source.Holding{Addr: c.addr, Protocol: c.protocol, Port: c.port, Namespace: name.Namespace, Name: name.Name})
	}
	slices.SortFunc(out, source.Holding.Compare)
	return out
}

func (o *ownership) setRivals(c claim, rivals []*source.Service) {
	if len(rivals) == 0 {
		delete(o.rivals, c)
		return
	}
	o.rivals[c] = rivals
}

func without(list []*source.Service, s *source.Service) []*source.Service {
	return slices.DeleteFunc(list, func(o *source.Service) bool { return o == s })
}

// before reports whether an open claim is a's rather than b's: its holder's, else by precedence.
func before(c claim, a, b *source.Service, holder tracker.Name) bool {
	switch {
	case b == programs && c.privileged():
		return false
	case holder == nameOf(a):
		return true
	case holder == nameOf(b):
		return false
	}
	return comparePrecedence(a, b) < 0
}

// comparePrecedence puts first who gets a claim that nobody has: the oldest, then by UID, then by name. A Service
// that says nothing of its age, as one of a manifest, is the youngest.
func comparePrecedence(a, b *source.Service) int {
	switch programs {
	case a:
		return -1
	case b:
		return 1
	}
	age := a.Created.Compare(b.Created)
	if a.Created.IsZero() || b.Created.IsZero() {
		age = -age
	}
	return cmp.Or(age, strings.Compare(a.UID, b.UID), nameOf(a).Compare(nameOf(b)))
}

func nameOf(s *source.Service) tracker.Name {
	return tracker.Name{Namespace: s.Namespace, Name: s.Name}
}
