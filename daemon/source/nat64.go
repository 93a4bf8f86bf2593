package source

import "net/netip"

// nat64Prefix is the well-known NAT64 prefix (RFC 6052).
var nat64Prefix = netip.MustParsePrefix("64:ff9b::/96")

// TranslateNAT64 returns the IPv4 address that is embedded in a NAT64 address, and returns any other address unchanged.
// Edgeway must not serve a forbidden IPv4 address, even through a NAT64 translator.
func TranslateNAT64(a netip.Addr) netip.Addr {
	if !nat64Prefix.Contains(a) {
		return a
	}
	raw := a.As16()
	return netip.AddrFrom4([4]byte(raw[12:]))
}
