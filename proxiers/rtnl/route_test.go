package rtnl

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseRoute(t *testing.T) {
	const protocol = 119
	whole := []byte{
		unix.AF_INET, 16, 0, 0, unix.RT_TABLE_MAIN, protocol, 0, unix.RTN_UNICAST, 0, 0, 0, 0, 8, 0,
		unix.RTA_DST, 0, 10, 96, 0, 0,
	}
	if to, by, ok := ParseRoute(whole); !ok || by != protocol || to.String() != "10.96.0.0/16" {
		t.Fatalf("%s %d %v", to, by, ok)
	}
	for i := range unix.SizeofRtMsg {
		if _, _, ok := ParseRoute(whole[:i]); ok {
			t.Errorf("%d bytes are a route", i)
		}
	}
	whole[0] = unix.AF_MPLS
	if _, _, ok := ParseRoute(whole); ok {
		t.Error("a route of another family is one")
	}
}
