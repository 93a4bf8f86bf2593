package ipvs

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/rtnl"
)

// cleanup removes the ipvs backend's objects from the host, whichever version of Edgeway created them. Connection
// tracking keeps translating open connections.
func cleanup(ctx context.Context, env proxiers.Env) error {
	if err := nfttable.Cleanup(ctx, tableName); err != nil {
		return err
	}
	ours, err := cleanUpRoutes(env)
	if err != nil {
		return err
	}
	if errors.Is(available(), proxiers.ErrUnsupported) {
		return nil // without IPVS there are no servers to remove
	}
	return cleanUpServers(ctx, ours)
}

// cleanUpRoutes removes Edgeway's routes and routing rules. ours reports whether an Edgeway routing rule existed, which
// means that the ipvs backend has run.
func cleanUpRoutes(env proxiers.Env) (ours bool, err error) {
	r, err := openRoutes(env.Families)
	if err != nil {
		return false, err
	}
	defer r.Close()
	for _, f := range env.Families {
		rules, err := r.RuleList(rtnl.Family(f))
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // the kernel has no routing rules for the family
		}
		if err != nil {
			return false, err
		}
		for i := range rules {
			ours = ours || rules[i].Priority == rulePriority && rules[i].Table == RouteTable
		}
	}
	routed, err := r.list()
	if err != nil {
		return ours, err
	}
	for a := range routed {
		if err := r.remove(a); err != nil {
			return ours, err
		}
	}
	if ours {
		err = r.removeRules()
	}
	return ours, err
}

// cleanUpServers removes Edgeway's virtual servers. If the ipvs backend has run and no other program uses IPVS,
// cleanUpServers also resets the IPVS sysctls to their defaults.
func cleanUpServers(ctx context.Context, ours bool) error {
	k, err := openClient()
	if err != nil {
		return err
	}
	defer k.Close()
	all, err := k.GetServices()
	if err != nil {
		return err
	}
	foreign := 0
	for _, s := range all {
		if s.FWMark != 0 || !isOwn(s) {
			foreign++
			continue
		}
		if err := errors.Join(ctx.Err(), k.DelService(s)); err != nil {
			return err
		}
	}
	if !ours || foreign > 0 {
		return nil
	}
	for _, name := range slices.Backward([]string{"conntrack", "expire_nodest_conn"}) {
		if err := setSysctl(sysctls+name, 0); err != nil {
			return err
		}
	}
	return nil
}
