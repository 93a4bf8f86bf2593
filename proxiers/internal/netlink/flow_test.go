package netlink

import (
	"net/netip"
	"testing"

	"edgeway/proxiers/plan"
)

// FuzzFlow decodes random attributes as a flow. Encoding and then decoding a flow must preserve it.
func FuzzFlow(f *testing.F) {
	for _, s := range []Scope{{plan.IPv4, plan.TCP}, {plan.IPv6, plan.UDP}, {plan.IPv4, plan.SCTP}} {
		fl := &Flow{ID: 7, Orig: Tuple{netip.AddrPortFrom(unspecified(s), 1), netip.AddrPortFrom(unspecified(s), 80)}}
		raw, err := fl.encodeDelete(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-3])
	}
	// These attributes are shorter than their types require.
	for _, kind := range []byte{ctaStatus, ctaID, ctaZone} {
		f.Add([]byte{4, 0, kind, 0})
		f.Add([]byte{5, 0, kind, 0, 1})
	}
	f.Add([]byte{16, 0, ctaTupleOrig, 128, 12, 0, ctaTupleProto, 128, 5, 0, ctaProtoDstPort, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		fl := decodeFlow(data)
		for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
			s := Scope{Family: family, Protocol: plan.TCP}
			src, dst := fl.Orig.Src.Addr(), fl.Orig.Dst.Addr()
			if !src.IsValid() || !dst.IsValid() || plan.FamilyOf(src) != family || plan.FamilyOf(dst) != family {
				continue
			}
			raw, err := fl.encodeDelete(s)
			if err != nil {
				t.Fatal(err)
			}
			if again := decodeFlow(raw); again.Orig != fl.Orig || again.ID != fl.ID {
				t.Errorf("%+v is written as %x, which is %+v", fl, raw, again)
			}
		}
	})
}
