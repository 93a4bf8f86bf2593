package ipvs

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// ownMark is the persistence timeout that marks Edgeway's virtual servers. Without persistence, the kernel stores and
// returns the timeout but does not use it (Linux 6.1 to 7.2).
const ownMark = 0xed6e

// persistentFlag is the flag of a server with persistence (IP_VS_SVC_F_PERSISTENT in linux/ip_vs.h).
const persistentFlag = 1

// weight returns an endpoint's weight, or 1 if the weight is 0, because IPVS sends no new connections to an endpoint
// with weight 0.
func weight(e plan.Endpoint) int { return max(1, int(e.Weight)) }

// client communicates with IPVS through netlink. A client is not safe for concurrent use.
type client struct{ *ipvs.Handle }

// openClient first tests whether the kernel has IPVS. The moby/ipvs library (v1.1.0) looks up IPVS once per process,
// and if IPVS is missing, the library reports every request as successful. The library also runs modprobe, which fails
// in the daemon's sandbox, and logs the failure.
func openClient() (*client, error) {
	if err := available(); err != nil {
		return nil, err
	}
	if _, err := netlink.GenlFamilyGet("IPVS"); err != nil {
		return nil, fmt.Errorf("IPVS through netlink: %w", err)
	}
	logrus.SetOutput(io.Discard)
	h, err := ipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("IPVS socket: %w", err)
	}
	return &client{h}, nil
}

func (k *client) find(at key) (f found, there bool, err error) {
	s, err := k.GetService(request(at, ""))
	switch {
	case errors.Is(err, unix.ESRCH):
		return found{}, false, nil
	case err != nil:
		return found{}, false, fmt.Errorf("%s: %w", at, err)
	}
	return found{s, isOwn(s)}, true, nil
}

type found struct {
	raw *ipvs.Service
	own bool
}

// list returns all virtual servers except those identified by a firewall mark.
func (k *client) list() (map[key]found, error) {
	all, err := k.GetServices()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	out := make(map[key]found, len(all))
	for _, s := range all {
		if s.FWMark == 0 {
			out[key{plan.Protocol(s.Protocol), addrPort(s.Address, s.Port)}] = found{s, isOwn(s)}
		}
	}
	return out, nil
}

func isOwn(s *ipvs.Service) bool { return s.Timeout == ownMark && s.Flags&persistentFlag == 0 }

// changedWeight is the weight that client.endpoints returns for an endpoint whose forwarding method or upper threshold
// another program has changed.
const changedWeight = -1

// endpoints returns the weights of a server's endpoints, by address.
func (k *client) endpoints(s *ipvs.Service) (map[netip.AddrPort]int, error) {
	all, err := k.GetDestinations(s)
	if err != nil {
		return nil, fmt.Errorf("endpoints of virtual server %s: %w", addrPort(s.Address, s.Port), err)
	}
	out := make(map[netip.AddrPort]int, len(all))
	for _, d := range all {
		a := addrPort(d.Address, d.Port)
		out[a] = d.Weight
		if d.ConnectionFlags&ipvs.ConnectionFlagFwdMask != ipvs.ConnectionFlagMasq || d.UpperThreshold != 0 {
			out[a] = changedWeight
		}
	}
	return out, nil
}

// addServer adds a virtual server, and succeeds if Edgeway's server already exists. If another program has a server at
// the address, addServer returns errForeign.
func (k *client) addServer(at key, scheduler string) error {
	s := request(at, scheduler)
	err := k.NewService(s)
	if errors.Is(err, unix.EEXIST) {
		var have *ipvs.Service
		if have, err = k.GetService(s); err == nil && !isOwn(have) {
			return errForeign
		}
		if err == nil {
			err = k.UpdateService(s)
		}
	}
	return serverError("virtual server", at, err)
}

func (k *client) updateServer(at key, scheduler string) error {
	return serverError("change virtual server", at, k.UpdateService(request(at, scheduler)))
}

// removeServer removes a virtual server, and succeeds if it does not exist.
func (k *client) removeServer(at key) error {
	err := k.DelService(request(at, ""))
	if errors.Is(err, unix.ESRCH) {
		err = nil
	}
	return serverError("remove virtual server", at, err)
}

// addEndpoint adds an endpoint, or updates its weight if it exists.
func (k *client) addEndpoint(at key, e plan.Endpoint) error {
	s, d := request(at, ""), destination(e)
	err := k.NewDestination(s, d)
	if errors.Is(err, unix.EEXIST) {
		err = k.UpdateDestination(s, d)
	}
	return serverError("endpoint "+e.Addr.String()+" of virtual server", at, err)
}

// removeEndpoint removes an endpoint, and succeeds if it does not exist. Connection tracking keeps translating the
// endpoint's open connections.
func (k *client) removeEndpoint(at key, e netip.AddrPort) error {
	err := k.DelDestination(request(at, ""), destination(plan.Endpoint{Addr: e}))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		err = nil
	}
	return serverError("remove endpoint "+e.String()+" from virtual server", at, err)
}

// errForeign means that another program has a virtual server at the address.
var errForeign = errors.New("another program has a virtual server at this address; " +
	"fix: remove the virtual server (ipvsadm -D), or give the Service another address")

// serverError adds the failed operation to the error. An error about an address or a scheduler wraps
// proxiers.ErrRefused, because the kernel will reject the same request again.
func serverError(what string, at key, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.EDOM), errors.Is(err, unix.ERANGE):
		return fmt.Errorf("%s %s/%s: %w: %w", what, at.at, at.proto, proxiers.ErrRefused, err)
	}
	return fmt.Errorf("%s %s/%s: %w", what, at.at, at.proto, err)
}

func request(at key, scheduler string) *ipvs.Service {
	s := &ipvs.Service{
		Address: at.at.Addr().AsSlice(), Port: at.at.Port(), Protocol: uint16(at.proto),
		AddressFamily: unix.AF_INET, Netmask: 0xffffffff, SchedName: scheduler, Timeout: ownMark,
	}
	if at.at.Addr().Is6() {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128 // an IPv6 netmask is a prefix length
	}
	return s
}

func destination(e plan.Endpoint) *ipvs.Destination {
	return &ipvs.Destination{
		Address: e.Addr.Addr().AsSlice(), Port: e.Addr.Port(), Weight: weight(e),
		ConnectionFlags: ipvs.ConnectionFlagMasq,
	}
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
