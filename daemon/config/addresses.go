package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// keyword is a word, such as "host", that can appear in a list of address ranges, together with the flag that the word
// sets.
type keyword struct {
	name string
	on   *bool
}

// nodePortAddresses accepts the same keywords as kube-proxy 1.37 (KEP-6032).
func nodePortAddresses(p *NodePortAddresses) value {
	return addresses(&p.Prefixes,
		keyword{"primary", &p.Primary}, keyword{"localhost", &p.Localhost}, keyword{"all", &p.All})
}

func hostRanges(p *HostRanges) value { return addresses(&p.Prefixes, keyword{"host", &p.Host}) }

// portRange returns a value that accepts "FIRST-LAST", or an empty string for all ports.
func portRange(p *PortRange) value {
	v := scalar(p, "a string", func(s string) (PortRange, error) {
		if s == "" {
			return PortRange{}, nil
		}
		low, high, _ := strings.Cut(s, "-")
		first, err1 := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || first == 0 || first > last {
			return PortRange{}, fmt.Errorf(`%q is not a range of ports, as in "30000-32767"`, s)
		}
		return PortRange{uint16(first), uint16(last)}, nil
	}, func(r PortRange) any {
		if r == (PortRange{}) {
			return ""
		}
		return r.String()
	})
	v.limits = "FIRST-LAST, or empty for any port"
	return v
}

func addresses(prefixes *[]netip.Prefix, words ...keyword) value {
	find := func(s string) int { return slices.IndexFunc(words, func(w keyword) bool { return w.name == s }) }
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w.name)
	}
	var elements []string
	inner := list(&elements, func(s string) (string, error) {
		if find(s) >= 0 {
			return s, nil
		}
		if _, err := parsePrefix(s); err != nil {
			return s, fmt.Errorf("%w; or use %s", err, joinOr(quoted))
		}
		return s, nil
	})
	return value{
		set: func(v any, dir string) error {
			if err := inner.set(v, dir); err != nil {
				return err
			}
			*prefixes = nil
			for _, w := range words {
				*w.on = slices.Contains(elements, w.name)
			}
			for _, s := range elements {
				if find(s) < 0 {
					*prefixes = append(*prefixes, netip.MustParsePrefix(s))
				}
			}
			return nil
		},
		get: func() any {
			out := []string{} // toml.Marshal skips a nil slice
			for _, w := range words {
				if *w.on {
					out = append(out, w.name)
				}
			}
			return append(out, texts(*prefixes)...)
		},
	}
}
