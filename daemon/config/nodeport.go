package config

import (
	"fmt"
	"net/netip"
)

// nodePortAddresses is a list of ranges and of kube-proxy's keywords, as 1.37 has them (KEP-6032).
func nodePortAddresses(p *NodePortAddresses) value {
	var elements []string
	inner := list(&elements, func(s string) (string, error) {
		if p.keyword(s) != nil {
			return s, nil
		}
		if _, err := parsePrefix(s); err != nil {
			return s, fmt.Errorf(`%w; "primary", "localhost" and "all" are allowed too`, err)
		}
		return s, nil
	})
	return value{
		set: func(v any, dir string) error {
			if err := inner.set(v, dir); err != nil {
				return err
			}
			*p = NodePortAddresses{}
			for _, s := range elements {
				if on := p.keyword(s); on != nil {
					*on = true
				} else {
					p.Prefixes = append(p.Prefixes, netip.MustParsePrefix(s))
				}
			}
			return nil
		},
		get: func() any {
			var out []string
			for _, s := range []string{"primary", "localhost", "all"} {
				if *p.keyword(s) {
					out = append(out, s)
				}
			}
			return append(out, texts(p.Prefixes)...)
		},
	}
}

// keyword gives the field that a keyword turns on; nil when s is none.
func (p *NodePortAddresses) keyword(s string) *bool {
	switch s {
	case "primary":
		return &p.Primary
	case "localhost":
		return &p.Localhost
	case "all":
		return &p.All
	}
	return nil
}
