package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The numbers of the fields are those of the files generated.proto in k8s.io/api and apimachinery, and never change.

func (l *List[T, P]) field(m *message) {
	switch m.number {
	case 1:
		m.into((*listMeta)(&l.ListMeta))
	case 2:
		m.into(P(grow(&l.Items)))
	}
}

type listMeta metav1.ListMeta

func (l *listMeta) field(m *message) {
	switch m.number {
	case 2:
		l.ResourceVersion = m.text()
	case 3:
		l.Continue = m.text()
	case 4:
		l.RemainingItemCount = new(int64(m.number64()))
	}
}

type objectMeta metav1.ObjectMeta

func (o *objectMeta) field(m *message) {
	switch m.number {
	case 1:
		o.Name = m.text()
	case 3:
		o.Namespace = m.text()
	case 5:
		o.UID = types.UID(m.text())
	case 6:
		o.ResourceVersion = m.text()
	case 8:
		o.CreationTimestamp = m.time()
	case 9:
		o.DeletionTimestamp = new(m.time())
	case 11:
		m.entry(&o.Labels)
	case 12:
		m.entry(&o.Annotations)
	}
}

// timestamp has whole seconds, as in JSON.
type timestamp struct{ seconds int64 }

func (t *timestamp) field(m *message) {
	if m.number == 1 {
		t.seconds = int64(m.number64())
	}
}

func (m *message) time() metav1.Time {
	var t timestamp
	if len(m.raw()) == 0 {
		return metav1.Time{}
	}
	m.into(&t)
	return metav1.Unix(t.seconds, 0)
}

// entry is one of a map of labels or annotations.
type entry struct{ key, value []byte }

func (e *entry) field(m *message) {
	switch m.number {
	case 1:
		e.key = m.raw()
	case 2:
		e.value = m.raw()
	}
}

// entry adds one that has a meaning here.
func (m *message) entry(to *map[string]string) {
	m.entryRead = entry{}
	m.into(&m.entryRead)
	switch key := string(m.entryRead.key); key {
	case LabelServiceName, LabelServiceProxyName, LabelHeadless, LabelZone,
		AnnotationLastChange, AnnotationTrafficHint, metav1.InitialEventsAnnotationKey:
		if *to == nil {
			*to = make(map[string]string, 1)
		}
		(*to)[key] = string(m.entryRead.value)
	}
}

func (s *Service) field(m *message) {
	switch m.number {
	case 1:
		m.into((*objectMeta)(&s.ObjectMeta))
	case 2:
		m.into(&s.Spec)
	case 3:
		m.into(&s.Status)
	}
}

func (s *ServiceSpec) field(m *message) {
	switch m.number {
	case 1:
		m.into(grow(&s.Ports))
	case 3:
		s.ClusterIP = m.text()
	case 4:
		s.Type = m.text()
	case 5:
		s.ExternalIPs = append(s.ExternalIPs, m.text())
	case 7:
		s.SessionAffinity = m.text()
	case 9:
		s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, m.text())
	case 11:
		s.ExternalTrafficPolicy = m.text()
	case 12:
		s.HealthCheckNodePort = m.int32()
	case 14:
		m.into(made(&s.SessionAffinityConfig))
	case 18:
		s.ClusterIPs = append(s.ClusterIPs, m.text())
	case 19:
		s.IPFamilies = append(s.IPFamilies, m.text())
	case 22:
		s.InternalTrafficPolicy = new(m.text())
	}
}

func (p *ServicePort) field(m *message) {
	switch m.number {
	case 1:
		p.Name = m.text()
	case 2:
		p.Protocol = m.text()
	case 3:
		p.Port = m.int32()
	case 5:
		p.NodePort = m.int32()
	}
}

func (c *SessionAffinityConfig) field(m *message) {
	if m.number == 1 {
		m.into(made(&c.ClientIP))
	}
}

func (c *ClientIPConfig) field(m *message) {
	if m.number == 1 {
		c.TimeoutSeconds = new(m.int32())
	}
}

func (s *ServiceStatus) field(m *message) {
	if m.number == 1 {
		m.into(&s.LoadBalancer)
	}
}

func (s *LoadBalancerStatus) field(m *message) {
	if m.number == 1 {
		m.into(grow(&s.Ingress))
	}
}

func (i *LoadBalancerIngress) field(m *message) {
	switch m.number {
	case 1:
		i.IP = m.text()
	case 3:
		i.IPMode = new(m.text())
	}
}

func (s *EndpointSlice) field(m *message) {
	switch m.number {
	case 1:
		m.into((*objectMeta)(&s.ObjectMeta))
	case 2:
		m.into(grow(&s.Endpoints))
	case 3:
		m.into(grow(&s.Ports))
	case 4:
		s.AddressType = m.text()
	}
}

func (e *Endpoint) field(m *message) {
	switch m.number {
	case 1:
		e.Addresses = append(e.Addresses, m.text())
	case 2:
		m.into(&e.Conditions)
	case 6:
		e.NodeName = new(m.text())
	case 8:
		m.into(made(&e.Hints))
	}
}

func (c *EndpointConditions) field(m *message) {
	switch m.number {
	case 1:
		c.Ready = new(m.flag())
	case 2:
		c.Serving = new(m.flag())
	case 3:
		c.Terminating = new(m.flag())
	}
}

func (h *EndpointHints) field(m *message) {
	switch m.number {
	case 1:
		m.into(grow(&h.ForZones))
	case 2:
		m.into(grow(&h.ForNodes))
	}
}

func (h *Hint) field(m *message) {
	if m.number == 1 {
		h.Name = m.text()
	}
}

func (p *EndpointPort) field(m *message) {
	switch m.number {
	case 1:
		p.Name = new(m.text())
	case 2:
		p.Protocol = new(m.text())
	case 3:
		p.Port = new(m.int32())
	}
}

func (n *Node) field(m *message) {
	switch m.number {
	case 1:
		m.into((*objectMeta)(&n.ObjectMeta))
	case 2:
		m.into(&n.Spec)
	case 3:
		m.into(&n.Status)
	}
}

func (s *NodeSpec) field(m *message) {
	switch m.number {
	case 1:
		s.PodCIDR = m.text()
	case 5:
		m.into(grow(&s.Taints))
	case 7:
		s.PodCIDRs = append(s.PodCIDRs, m.text())
	}
}

func (t *Taint) field(m *message) {
	if m.number == 1 {
		t.Key = m.text()
	}
}

func (s *NodeStatus) field(m *message) {
	if m.number == 5 {
		m.into(grow(&s.Addresses))
	}
}

func (a *NodeAddress) field(m *message) {
	switch m.number {
	case 1:
		a.Type = m.text()
	case 2:
		a.Address = m.text()
	}
}

func (c *ServiceCIDR) field(m *message) {
	switch m.number {
	case 1:
		m.into((*objectMeta)(&c.ObjectMeta))
	case 2:
		m.into(&c.Spec)
	}
}

func (s *ServiceCIDRSpec) field(m *message) {
	if m.number == 1 {
		s.CIDRs = append(s.CIDRs, m.text())
	}
}
