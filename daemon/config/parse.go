package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return a, fmt.Errorf(`%q is not an address, as in "192.0.2.1"`, s)
	case a.Is4In6():
		return a, fmt.Errorf("%q is an IPv4 address in IPv6 form; write %s", s, a.Unmap())
	case a.Zone() != "":
		return a, fmt.Errorf("%q has a zone, which is not allowed", s)
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return a, fmt.Errorf("%q is an unspecified, loopback or multicast address, which is not allowed", s)
	}
	return a, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf(`%q is not a range, as in "10.0.0.0/8"`, s)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4 range in IPv6 form", s)
	case p != p.Masked():
		return p, fmt.Errorf("%q has bits set beyond its prefix length; did you mean %s?", s, p.Masked())
	}
	return p, nil
}

func parseFamily(s string) (plan.Family, error) {
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		if s == f.String() {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%q is not an address family: use %q or %q", s, plan.IPv4, plan.IPv6)
}

func parseCheckedSource(s string) (CheckedSource, error) {
	for _, source := range []CheckedSource{CheckedFile, CheckedKube} {
		if s == string(source) {
			return source, nil
		}
	}
	return "", fmt.Errorf("%q is not a source whose endpoints Edgeway can check: use %q or %q", s, CheckedFile,
		CheckedKube)
}

// parseFaultID accepts the ID of any fault, because a fault that is a notice on one host can be a problem on another.
func parseFaultID(s string) (string, error) {
	known := fault.IDs()
	if slices.Contains(known, s) {
		return s, nil
	}
	return s, fmt.Errorf("%q is not the ID of a fault; did you mean %q?", s, text.ClosestWord(s, known))
}

func parseNamespace(s string) (string, error) {
	return s, invalid(s, "a namespace", validation.IsDNS1123Label(s))
}

func parseServiceName(s string) (ServiceName, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return ServiceName{}, fmt.Errorf(`%q lacks a namespace: write NAMESPACE/NAME, as in "default/web"`, s)
	}
	for _, part := range []string{namespace, name} {
		if err := invalid(s, `a Service name, as in "default/web"`, validation.IsDNS1123Label(part)); err != nil {
			return ServiceName{}, err
		}
	}
	return ServiceName{namespace, name}, nil
}

func nodeName(s string) error {
	if s == "" {
		return nil
	}
	return invalid(s, "a node name", validation.IsDNS1123Subdomain(s))
}

func labelValue(s string) error {
	return invalid(s, "a label value", validation.IsValidLabelValue(s))
}

func invalid(s, what string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%q is not %s: %s", s, what, problems[0])
}

func labelSelector(s string) error {
	if _, err := labels.Parse(s); err != nil {
		return fmt.Errorf("%q is not a label selector: %w", s, err)
	}
	return nil
}

func bridgeName(s string) error {
	switch {
	case s == "":
		return nil
	case strings.HasSuffix(s, "*"):
		return fmt.Errorf("%q matches more than one interface: use proxy.interface_name_prefix", s)
	}
	return plan.ValidateInterface(s)
}

func interfacePrefix(s string) error {
	if s == "" {
		return nil
	}
	return plan.ValidateInterface(s + "*")
}

// listenAddress returns a value that accepts a server address: "host:port", ":port", or "" for no server. The host must
// be an IP address, because a host name could resolve to another address after a reboot.
func listenAddress(p *string) value {
	v := str(p, func(s string) error {
		if s == "" {
			return nil
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf(`%q is not a listen address, as in "127.0.0.1:10249" or ":10256"`, s)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q: port %q is out of range (1 to 65535)", s, port)
		}
		if host != "" {
			if _, err := netip.ParseAddr(host); err != nil {
				return fmt.Errorf("%q: %q is not an address", s, host)
			}
		}
		return nil
	})
	v.limits = "address:port, :port or empty"
	return v
}

var errNoSource = errors.New("no source of Services: set source.kube.kubeconfig, source.file.paths, or both")
