// Package convert converts Kubernetes objects to source objects. The package reads only the fields that a service
// proxy uses, and checks each field as strictly as the API server does. The package also rejects addresses that no
// Service may point to: loopback, link-local, multicast, broadcast and reserved addresses, and for frontends the
// addresses of cloud metadata services (CVE-2021-25737, CVE-2020-8554). An invalid field is left out and named in the
// object's problems; the rest of the object is kept. A conversion never fails: an object whose conversion panics is
// reduced to its name and a problem.
//
// Every string that can reach a kernel rule is formatted from a parsed value or consists of [a-z0-9.-] only. The
// planner rejects addresses that depend on the host, such as the host's own addresses and the API server's.
package convert

import (
	"fmt"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
)

// Converter converts objects and shares the strings that many objects repeat: namespaces, node names, zones, port
// names. The zero value is ready to use. A Converter is not safe for concurrent use.
type Converter struct {
	// Before, unless it is nil, is called with the key of each object before its conversion. Tests use Before to cause
	// panics.
	Before  func(source.Key)
	strings map[string]string
}

// contained runs the conversion of an object. If the conversion panics, contained returns an object that carries only
// a problem.
func contained[T source.Object](c *Converter, key source.Key, convert func() (T, bool)) (out T, ok bool) {
	err := contain.Call(func() error {
		if c.Before != nil {
			c.Before(key)
		}
		out, ok = convert()
		return nil
	})
	if err != nil {
		out, ok = source.Refuse(key, "cannot be read: "+err.Error()).(T)
	}
	return out, ok
}

// maxShared bounds the table of shared strings. A full table is discarded.
const maxShared = 1 << 14

// share returns an equal string that other objects use too.
func (c *Converter) share(s string) string {
	if s == "" {
		return ""
	}
	if shared, ok := c.strings[s]; ok {
		return shared
	}
	if c.strings == nil || len(c.strings) >= maxShared {
		c.strings = make(map[string]string)
	}
	c.strings[s] = s
	return s
}

// faults collects the faults of one object.
type faults struct{ source.Faults }

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// set holds the values already seen in a list, which may be long.
type set[T comparable] map[T]struct{}

// add reports whether v is new.
func (s set[T]) add(v T) bool {
	n := len(s)
	s[v] = struct{}{}
	return len(s) > n
}
