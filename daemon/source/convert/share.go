package convert

import "edgeway/daemon/source"

// Share replaces the strings in o with the copies that the Converter's objects share. Call Share before another
// goroutine uses o.
func (c *Converter) Share(o source.Object) {
	switch o := o.(type) {
	case *source.Service:
		o.Namespace = c.share(o.Namespace)
		for i := range o.Ports {
			o.Ports[i].Name = c.share(o.Ports[i].Name)
		}
	case *source.EndpointSlice:
		o.Namespace = c.share(o.Namespace)
		for i := range o.Ports {
			o.Ports[i].Name = c.share(o.Ports[i].Name)
		}
		var prev *source.Endpoint
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			e.NodeName = c.share(e.NodeName)
			c.shareHints(e, prev)
			prev = e
		}
	}
}

// shareHints makes e share prev's hints if the hints of both are equal. Most endpoints have the same hints as the
// previous endpoint.
func (c *Converter) shareHints(e, prev *source.Endpoint) {
	if e.Hints == nil {
		return
	}
	if prev != nil && e.Hints.Equal(prev.Hints) {
		e.Hints = prev.Hints
		return
	}
	for i := range e.ForNodes {
		e.ForNodes[i] = c.share(e.ForNodes[i])
	}
	for i := range e.ForZones {
		e.ForZones[i] = c.share(e.ForZones[i])
	}
}
