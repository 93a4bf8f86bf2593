package convert

import "strings"

// isLabel reports whether s is a DNS label (RFC 1123). The names of namespaces, Services and ports must be DNS
// labels.
func isLabel(s string) bool {
	return len(s) <= 63 && !strings.Contains(s, ".") && isSubdomain(s)
}

// isSubdomain reports whether s is a DNS subdomain (RFC 1123). The names of EndpointSlices, Nodes and ServiceCIDRs
// must be DNS subdomains.
func isSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	before := byte('.')
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && before != '.', c == '.' && before != '.' && before != '-':
		default:
			return false
		}
		before = c
	}
	return before != '.' && before != '-'
}

// isLabelValue reports whether s is a non-empty label value. A zone name must be a non-empty label value.
func isLabelValue(s string) bool {
	if s == "" || len(s) > 63 || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
