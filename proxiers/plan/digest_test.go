package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

func sample() *ServicePort {
	route := Route{Forward, LocalPool, true}
	return &ServicePort{
		Name:     ServicePortName{"ns", "svc", "http", TCP},
		Family:   IPv4,
		Affinity: time.Hour, LongLived: true,
		Frontends: []Frontend{{
			Kind: LoadBalancerIP, Addr: netip.MustParseAddr("198.51.100.1"), Port: 80,
			AllowFrom: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
			Routes:    [numOrigins]Route{route, route, route},
		}},
		Pools: [numPools][]Endpoint{
			{{netip.MustParseAddrPort("10.1.0.1:8080"), true, 1}},
			{{netip.MustParseAddrPort("10.1.0.2:8080"), true, 2}},
		},
		Serving: []Endpoint{{netip.MustParseAddrPort("10.1.0.3:8080"), false, 0}},
	}
}

// mutateFields changes each field of v in turn, calls f after each change, and restores the field. The test fails if a
// field has an unsupported type, so the test cannot miss a new field.
func mutateFields(t *testing.T, path string, v reflect.Value, f func(path string)) {
	t.Helper()
	try := func(path string, value any) {
		old := reflect.ValueOf(v.Interface())
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
		f(path)
		v.Set(old)
	}
	switch x := v.Interface().(type) {
	case netip.Addr:
		try(path, x.Next())
		try(path+" unset", netip.Addr{})
		return
	case netip.AddrPort:
		try(path+" address", netip.AddrPortFrom(x.Addr().Next(), x.Port()))
		try(path+" port", netip.AddrPortFrom(x.Addr(), x.Port()+1))
		return
	case netip.Prefix:
		try(path+" address", netip.PrefixFrom(x.Addr().Next(), x.Bits()))
		try(path+" bits", netip.PrefixFrom(x.Addr(), x.Bits()-1))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			mutateFields(t, path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case reflect.Array:
		for i := range v.Len() {
			mutateFields(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
	case reflect.Slice:
		if v.Len() == 0 {
			t.Fatalf("the sample has nothing in %s", path)
		}
		for i := range v.Len() {
			mutateFields(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
		try(path+" shorter", v.Slice(0, v.Len()-1).Interface())
		try(path+" longer", reflect.Append(v, v.Index(0)).Interface())
	case reflect.String:
		try(path, v.String()+"x")
	case reflect.Bool:
		try(path, !v.Bool())
	case reflect.Uint8, reflect.Uint16:
		try(path, v.Uint()+1)
	case reflect.Int64:
		try(path, v.Int()+1)
	default:
		t.Fatalf("%s: a %s is not known to this test", path, v.Type())
	}
}

func TestDigestIsComplete(t *testing.T) {
	s := sample()
	s.Seal()
	seen := map[[32]byte]string{s.Digest: "the sample"}
	count := 0
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i).Name
		if field == "Digest" {
			continue
		}
		mutateFields(t, field, v.Field(i), func(path string) {
			count++
			s.Seal()
			if other, ok := seen[s.Digest]; ok {
				t.Errorf("%s: the digest is that of %s", path, other)
			}
			seen[s.Digest] = path
		})
	}
	if count < 40 {
		t.Errorf("only %d changes were tried", count)
	}
	s.Seal()
	if again := sample(); !reflect.DeepEqual(s.Frontends, again.Frontends) {
		t.Error("the test did not restore what it changed")
	}
}

// ServicePorts with similar contents have different digests if a backend must treat them differently.
func TestDigestIsUnambiguous(t *testing.T) {
	digest := func(change func(*ServicePort)) [32]byte {
		s := sample()
		change(s)
		s.Seal()
		return s.Digest
	}
	for name, pair := range map[string][2]func(*ServicePort){
		"nobody and anybody": {
			func(s *ServicePort) { s.Frontends[0].AllowFrom = nil },
			func(s *ServicePort) { s.Frontends[0].AllowFrom = []netip.Prefix{} },
		},
		"names that join to the same": {
			func(s *ServicePort) { s.Name.Namespace, s.Name.Name = "a", "bc" },
			func(s *ServicePort) { s.Name.Namespace, s.Name.Name = "ab", "c" },
		},
		"an endpoint in the other pool": {
			func(s *ServicePort) { s.Pools[ClusterPool], s.Pools[LocalPool] = s.Pools[LocalPool], nil },
			func(s *ServicePort) { s.Pools[ClusterPool] = nil },
		},
		"families of one address": {
			func(s *ServicePort) { s.Frontends[0].Addr = netip.MustParseAddr("1.2.3.4") },
			func(s *ServicePort) { s.Frontends[0].Addr = netip.MustParseAddr("::ffff:1.2.3.4") },
		},
	} {
		if digest(pair[0]) == digest(pair[1]) {
			t.Errorf("%s: same digest", name)
		}
	}
	if digest(func(*ServicePort) {}) != digest(func(s *ServicePort) { s.Serving = slices.Clone(s.Serving) }) {
		t.Error("equal values have different digests")
	}
}

func BenchmarkSeal(b *testing.B) {
	s := sample()
	for b.Loop() {
		s.Seal()
	}
}
