package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Seal computes Digest from all other fields. The planner calls Seal once, when the ServicePort is complete. Sealed
// ServicePorts are equal if and only if their digests are equal.
func (s *ServicePort) Seal() {
	b := make(digestBuffer, 0, 512)
	b.str(s.Name.Namespace)
	b.str(s.Name.Name)
	b.str(s.Name.Port)
	b.num(uint64(s.Name.Protocol))
	b.num(uint64(s.Family))
	b.num(uint64(s.Affinity))
	b.flag(s.LongLived)
	b.str(s.Scheduler)
	b.num(uint64(len(s.Frontends)))
	for i := range s.Frontends {
		b.frontend(&s.Frontends[i])
	}
	for _, pool := range s.Pools {
		b.endpoints(pool)
	}
	b.endpoints(s.Serving)
	s.Digest = sha256.Sum256(b)
}

// digestBuffer holds an unambiguous encoding: the length of each variable-length field precedes the field.
type digestBuffer []byte

func (b *digestBuffer) num(n uint64) { *b = binary.AppendUvarint(*b, n) }

func (b *digestBuffer) str(s string) {
	b.num(uint64(len(s)))
	*b = append(*b, s...)
}

func (b *digestBuffer) flag(v bool) {
	if v {
		*b = append(*b, 1)
	} else {
		*b = append(*b, 0)
	}
}

func (b *digestBuffer) addr(a netip.Addr) {
	raw := a.AsSlice()
	b.num(uint64(len(raw)))
	*b = append(*b, raw...)
}

func (b *digestBuffer) endpoints(list []Endpoint) {
	b.num(uint64(len(list)))
	for _, e := range list {
		b.addr(e.Addr.Addr())
		b.num(uint64(e.Addr.Port()))
		b.num(uint64(e.Weight))
		b.flag(e.Local)
	}
}

func (b *digestBuffer) frontend(f *Frontend) {
	b.num(uint64(f.Kind))
	b.addr(f.Addr)
	b.num(uint64(f.Port))
	b.flag(f.AllowFrom != nil)
	b.num(uint64(len(f.AllowFrom)))
	for _, p := range f.AllowFrom {
		b.addr(p.Addr())
		b.num(uint64(p.Bits()))
	}
	for _, r := range f.Routes {
		b.num(uint64(r.Verdict))
		b.num(uint64(r.Pool))
		b.flag(r.SNAT)
	}
}

func search(services []*ServicePort, name ServicePortName, family Family) (int, bool) {
	want := &ServicePort{Name: name, Family: family}
	return slices.BinarySearchFunc(services, want, func(a, b *ServicePort) int { return a.Compare(b) })
}
