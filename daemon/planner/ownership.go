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

// ownership knows who has what. A Service claims each claim once.
type ownership struct {
	owner map[claim]*source.Service
	// rivals are those that want what another one has; no entry is empty.
	rivals map[claim][]*source.Service
}

func newOwnership() ownership {
	return ownership{map[claim]*source.Service{}, map[claim][]*source.Service{}}
}

// add enters a claim. When s now has it in the place of another one, that one and all other rivals are
// returned: the answer to "who has it" is another for them.
func (o *ownership) add(c claim, s *source.Service) (disturbed []*source.Service) {
	owner := o.owner[c]
	switch {
	case owner == nil:
		o.owner[c] = s
		return nil
	case comparePrecedence(s, owner) < 0:
		o.owner[c] = s
		o.rivals[c] = append(o.rivals[c], owner)
		return o.rivals[c]
	}
	o.rivals[c] = append(o.rivals[c], s)
	return nil
}

// remove undoes add. When s had the claim, its rivals are returned, one of which has it now.
func (o *ownership) remove(c claim, s *source.Service) (disturbed []*source.Service) {
	rivals := o.rivals[c]
	if o.owner[c] != s {
		o.setRivals(c, without(rivals, s))
		return nil
	}
	if len(rivals) == 0 {
		delete(o.owner, c)
		return nil
	}
	disturbed = slices.Clone(rivals)
	heir := slices.MinFunc(rivals, comparePrecedence)
	o.owner[c] = heir
	o.setRivals(c, without(rivals, heir))
	return disturbed
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

// comparePrecedence puts first who has a claim: the oldest, then by UID, then by name. A Service from
// a manifest file that says nothing of its age counts as the oldest.
func comparePrecedence(a, b *source.Service) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.UID, b.UID), nameOf(a).Compare(nameOf(b)))
}

func nameOf(s *source.Service) tracker.Name {
	return tracker.Name{Namespace: s.Namespace, Name: s.Name}
}
