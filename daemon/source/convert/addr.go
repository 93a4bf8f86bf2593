package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// parseAddr parses an address as leniently as Kubernetes does in fields that predate Go 1.17's strict parser: the
// octets of an IPv4 address are decimal and may have leading zeros. parseAddr rejects addresses with a zone and
// IPv4-mapped IPv6 addresses.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(trimOctets(s))
	}
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%.64q is not an IP address", s)
	case a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%.64q: an address with a zone is not allowed", s)
	case a.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s: an IPv4-mapped IPv6 address is not allowed", a)
	}
	return a, nil
}

func trimOctets(s string) string {
	octets := strings.Split(s, ".")
	if len(octets) != 4 {
		return s
	}
	for i, o := range octets {
		octets[i] = strings.TrimLeft(o, "0")
		if octets[i] == "" && o != "" {
			octets[i] = "0"
		}
	}
	return strings.Join(octets, ".")
}

// parsePrefix accepts prefixes with host bits, as Kubernetes does, and clears the host bits.
func parsePrefix(s string) (netip.Prefix, error) {
	addr, length, ok := strings.Cut(s, "/")
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%.64q is not an address range", s)
	}
	a, err := parseAddr(addr)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%.64q is not an address range: %w", s, err)
	}
	bits, err := strconv.ParseUint(length, 10, 8)
	if err != nil || int(bits) > a.BitLen() {
		return netip.Prefix{},
			fmt.Errorf("%.64q is not an address range: the prefix length must be 0 to %d", s, a.BitLen())
	}
	return netip.PrefixFrom(a, int(bits)).Masked(), nil
}

var (
	errUnspecified = errors.New("the unspecified address is not allowed")
	errLoopback    = errors.New("an address in the loopback range is not allowed")
	errLinkLocal   = errors.New("an address in the link-local range is not allowed")
	errMulticast   = errors.New("an address in the multicast range is not allowed")
	errThisNetwork = errors.New("an address in 0.0.0.0/8 (\"this network\") is not allowed")
	errReserved    = errors.New("a reserved or broadcast address (240.0.0.0/4) is not allowed")
	errCompatible  = errors.New("an IPv4-compatible IPv6 address (::/96) is not allowed")
	errMetadata    = errors.New("the address of a cloud's metadata service is not allowed")
	errProtocols   = errors.New("an address in 192.0.0.0/24, which is reserved for IETF protocols, is not allowed")
)

// compatibleRange contains the IPv4-compatible addresses (RFC 4291). If a sit device is up, Linux sends a packet for an
// IPv4-compatible address to the embedded IPv4 address.
var compatibleRange = netip.MustParsePrefix("::/96")

var notUnicast = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"),
	compatibleRange, netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// validateUnicast rejects addresses that can be neither a frontend nor an endpoint. Packets to a rejected address stay
// on this host or its link, or reach no host. For an address in the NAT64 prefix, validateUnicast examines the embedded
// IPv4 address.
func validateUnicast(a netip.Addr) error {
	a = source.TranslateNAT64(a)
	switch {
	case a.IsUnspecified():
		return errUnspecified
	case a.IsLoopback():
		return errLoopback
	case a.IsLinkLocalUnicast():
		return errLinkLocal
	case a.IsMulticast():
		return errMulticast
	case a.Is4() && a.As4()[0] == 0:
		return errThisNetwork
	case a.Is4() && a.As4()[0] >= 240:
		return errReserved
	case compatibleRange.Contains(a):
		return errCompatible
	}
	return nil
}

// metadataAddrs lists addresses of cloud metadata services, which provide a host with its identity and credentials. The
// metadata services of most clouds use 169.254.169.254, which is link-local. An endpoint may have a metadata address,
// because a pod network can contain 100.100.100.200. To forbid endpoints at metadata addresses, set
// proxy.deny_endpoints.
var metadataAddrs = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"),      // Azure
	netip.MustParseAddr("100.100.100.200"),    // Alibaba
	netip.MustParseAddr("fd00:ec2::254"),      // AWS
	netip.MustParseAddr("fd20:ce::254"),       // Google
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"), // Oracle, which also uses 192.0.0.192
	netip.MustParseAddr("fd00:42::42"),        // Scaleway
}

// protocolRange is the range that IANA reserves for IETF protocol assignments (RFC 6890). Hosts use 192.0.0.170 to
// detect NAT64 (RFC 7050).
var protocolRange = netip.MustParsePrefix("192.0.0.0/24")

// validateFrontend rejects addresses that are valid for an endpoint but not for a frontend.
func validateFrontend(a netip.Addr) error {
	a = source.TranslateNAT64(a)
	switch {
	case slices.Contains(metadataAddrs, a):
		return errMetadata
	case protocolRange.Contains(a):
		return errProtocols
	}
	return nil
}

func parseUnicast(s string) (netip.Addr, error) {
	a, err := parseAddr(s)
	if err != nil {
		return netip.Addr{}, err
	}
	if err := validateUnicast(a); err != nil {
		return netip.Addr{}, fmt.Errorf("%s: %w", a, err)
	}
	return a, nil
}

func parseFrontend(s string) (netip.Addr, error) {
	a, err := parseUnicast(s)
	if err != nil {
		return a, err
	}
	if err := validateFrontend(a); err != nil {
		return a, fmt.Errorf("%s: %w", a, err)
	}
	return a, nil
}

// familiesOf guesses the address family of an invalid range, and returns both families if the range could belong to
// either.
func familiesOf(s string) []plan.Family {
	colon, dot := strings.Contains(s, ":"), strings.Contains(s, ".")
	switch {
	case colon && !dot:
		return []plan.Family{plan.IPv6}
	case dot && !colon:
		return []plan.Family{plan.IPv4}
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}

func parsePort(n int32) (port uint16, ok bool) {
	if n < 1 || n > 65535 {
		return 0, false
	}
	return uint16(n), true
}
