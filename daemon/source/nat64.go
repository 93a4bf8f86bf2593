package source

import "net/netip"

// nat64 is the well-known NAT64 prefix (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Translated returns the IPv4 address that NAT64 translates a to, or a itself if a is outside the NAT64 prefix. Edgeway
// must not serve a forbidden IPv4 address, not even through a NAT64 translator.
func Translated(a netip.Addr) netip.Addr {
	if !nat64.Contains(a) {
		return a
	}
	raw := a.As16()
	return netip.AddrFrom4([4]byte(raw[12:]))
}
