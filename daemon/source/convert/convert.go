// Package convert makes source objects of Kubernetes objects. It reads only the fields that a service proxy uses and
// checks each of them as strictly as the API server does, and then refuses what no Service may point at (loopback,
// link-local, multicast, broadcast and reserved addresses, and as frontends those of the clouds' metadata:
// CVE-2021-25737, CVE-2020-8554). A field that is wrong is left out and named in the object's problems; the rest of the
// object is kept. Nothing in an object can make a conversion fail: of an object whose conversion panics nothing is left
// but its name and a problem.
//
// Every string that can reach a rule of the kernel is re-printed from a parsed value or consists of
// [a-z0-9.-] only. What depends on the host (its addresses, the API server's) is the planner's to refuse.
package convert

import (
	"fmt"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
)

// Converter converts objects and shares the strings that many of them repeat: namespaces, node
// names, zones, port names. The zero value is ready; it is not safe for concurrent use.
type Converter struct {
	// Before is called with the key of each object before its conversion. Tests make it panic. It may be nil.
	Before  func(source.Key)
	strings map[string]string
}

// contained runs the conversion of an object. One that panics gives an object that carries nothing but a problem.
func contained[T source.Object](c *Converter, key source.Key, convert func() (T, bool)) (out T, ok bool) {
	err := contain.Call(func() error {
		if c.Before != nil {
			c.Before(key)
		}
		out, ok = convert()
		return nil
	})
	if err != nil {
		out, ok = source.Refuse(key, "it cannot be read: "+err.Error()).(T)
	}
	return out, ok
}

// maxShared bounds the table of shared strings; a full table is started afresh.
const maxShared = 1 << 14

// share gives an equal string that other objects use too.
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

// set is what was seen of a list that may be long.
type set[T comparable] map[T]struct{}

// add reports whether v is new.
func (s set[T]) add(v T) bool {
	n := len(s)
	s[v] = struct{}{}
	return len(s) > n
}
