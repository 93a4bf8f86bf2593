package source

import "net/netip"

// nat64 is the well-known prefix of RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Translated returns the IPv4 address that NAT64 sends a packet to a on to, and a itself if a is not such an address.
// What must not be reached over IPv4 must not be reached through a translator on this host either.
func Translated(a netip.Addr) netip.Addr {
	if !nat64.Contains(a) {
		return a
	}
	raw := a.As16()
	return netip.AddrFrom4([4]byte(raw[12:]))
}
