package plantest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/proxiers/plan"
)

// Validate returns an error unless the plan has the form that proxiers require.
func Validate(p *plan.Plan) error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(validatePrefixes("pod sources", p.Node.PodSources))
	add(validatePrefixes("Service CIDRs", p.Node.ServiceCIDRs))
	for _, pattern := range p.Node.PodInterfaces {
		add(plan.ValidateInterface(pattern))
	}
	if !slices.IsSortedFunc(p.Services, func(a, b *plan.ServicePort) int { return a.Compare(b) }) {
		add(errors.New("ServicePorts are not sorted"))
	}
	for _, svc := range p.Services {
		if err := validate(svc); err != nil {
			add(fmt.Errorf("%s over %s: %w", svc.Name, svc.Family, err))
		}
	}
	return errors.Join(errs...)
}

func validate(s *plan.ServicePort) error {
	for i := range s.Frontends {
		f := &s.Frontends[i]
		if f.Kind != plan.NodePort && plan.FamilyOf(f.Addr) != s.Family {
			return fmt.Errorf("%s %s is not in the ServicePort's address family", f.Kind, f.Addr)
		}
		if err := validatePrefixes("allowed sources", f.AllowFrom); err != nil {
			return err
		}
		for _, prefix := range f.AllowFrom {
			if plan.FamilyOf(prefix.Addr()) != s.Family {
				return fmt.Errorf("allowed source %s is not in the ServicePort's address family", prefix)
			}
		}
		for origin, r := range f.Routes {
			if r.Verdict == plan.Forward && len(s.Pools[r.Pool]) == 0 {
				return fmt.Errorf("the route of %s from %s uses the %s pool, which is empty", f.Kind,
					plan.Origin(origin), r.Pool)
			}
		}
	}
	for pool, list := range s.Pools {
		for _, e := range list {
			if plan.FamilyOf(e.Addr.Addr()) != s.Family {
				return fmt.Errorf("endpoint %s of the %s pool is not in the ServicePort's address family", e.Addr,
					plan.Pool(pool))
			}
		}
	}
	return nil
}

// validatePrefixes returns an error unless list has the form that plan.NormalizePrefixes returns.
func validatePrefixes(what string, list []netip.Prefix) error {
	if !slices.Equal(list, plan.NormalizePrefixes(list)) {
		return fmt.Errorf("%s %v are not masked, sorted and disjoint", what, list)
	}
	return nil
}
