package ipvs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// schedulers lists the schedulers in Linux 6.1 to 7.2. Each scheduler is a kernel module, and a kernel may lack some of
// them.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "dh", "sh", "sed", "nq", "mh", "twos"}

func (p *proxier) scheduler(svc *plan.ServicePort) string {
	return cmp.Or(svc.Scheduler, p.settings.scheduler)
}

// validateScheduler returns an error if scheduler is not in schedulers. The kernel would try to load a module for an
// unknown scheduler.
func validateScheduler(scheduler string) error {
	if slices.Contains(schedulers, scheduler) {
		return nil
	}
	return fmt.Errorf("%w: unknown scheduler %q: use one of %s", proxiers.ErrRefused, scheduler,
		strings.Join(schedulers, ", "))
}
