// Package convert converts Kubernetes objects to source objects. The package reads only the fields that a service proxy
// uses, and validates each field as strictly as the API server does. The package also rejects the addresses that no
// Service may have (CVE-2021-25737, CVE-2020-8554). A Service must not have a loopback, link-local, multicast,
// broadcast or reserved address. A frontend must not have the address of a cloud metadata service either. If a field is
// invalid, the package ignores the field, adds a problem that names it, and converts the rest of the object. A
// conversion never fails: after a panic, the result contains only the object's name and a problem.
//
// A string that can reach a kernel rule either comes from a parsed value or consists only of the characters [a-z0-9.-].
// The planner rejects addresses that are forbidden only on this host, such as the host's own addresses.
package convert

import (
	"fmt"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
)

// Converter converts objects. The objects that a Converter returns share common strings, such as namespaces, node
// names, zones and port names. The zero Converter is ready to use. A Converter is not safe for concurrent use.
type Converter struct {
	// If BeforeConvert is not nil, the Converter calls it with each object's key before the conversion. Tests use
	// BeforeConvert to cause panics.
	BeforeConvert func(source.Key)
	strings       map[string]string
}

// containPanic returns the result of calling convert or, if the call panics, an object that contains only the key and a
// problem.
func containPanic[T source.Object](c *Converter, key source.Key, convert func() T) (out T) {
	err := contain.Call(func() error {
		if c.BeforeConvert != nil {
			c.BeforeConvert(key)
		}
		out = convert()
		return nil
	})
	if err != nil {
		out, _ = source.NewReplacement(key, "cannot be read: "+err.Error()).(T)
	}
	return out
}

// maxShared is the maximum number of shared strings. A Converter that reaches maxShared discards all of its shared
// strings.
const maxShared = 1 << 14

// share returns the copy of s that all of the Converter's objects share.
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

type faults struct{ source.Faults }

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

type set[T comparable] map[T]struct{}

// add adds v to the set and reports whether v is new.
func (s set[T]) add(v T) bool {
	n := len(s)
	s[v] = struct{}{}
	return len(s) > n
}
