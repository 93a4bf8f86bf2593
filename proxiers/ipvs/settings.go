package ipvs

import (
	"fmt"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/sysctl"
)

type settings struct {
	scheduler string
	strictARP bool
}

func keys() []proxiers.Setting {
	return []proxiers.Setting{
		{
			Name: "scheduler", Default: schedulers[0], Values: schedulers,
			Doc: "The IPVS scheduler that chooses the endpoint for a new connection (see ipvsadm(8)). " +
				"The kernel loads the scheduler's module, ip_vs_NAME, automatically.",
		},
		{
			Name: "strict_arp", Default: false,
			Doc: "Whether Edgeway sets the sysctls arp_ignore = 1 and arp_announce = 2 for all interfaces. " +
				"If strict_arp is true, this host does not answer ARP requests for virtual server addresses. " +
				"The sysctls apply to the whole host, and Edgeway does not reset them.",
		},
	}
}

func settingsOf(env proxiers.Env) settings {
	s := settings{scheduler: schedulers[0]}
	if v, ok := env.Settings["scheduler"].(string); ok {
		s.scheduler = v
	}
	s.strictARP, _ = env.Settings["strict_arp"].(bool)
	return s
}

// applySysctls sets the sysctls that make IPVS use connection tracking and choose a new endpoint for a connection whose
// endpoint was removed. The sysctls are per network namespace.
func (s settings) applySysctls() error {
	values := map[string]int{sysctls + "conntrack": 1, sysctls + "expire_nodest_conn": 1}
	if s.strictARP {
		values["/proc/sys/net/ipv4/conf/all/arp_ignore"], values["/proc/sys/net/ipv4/conf/all/arp_announce"] = 1, 2
	}
	for path, value := range values {
		if err := setSysctl(path, value); err != nil {
			return err
		}
	}
	return nil
}

func setSysctl(path string, value int) error {
	if err := sysctl.Set(path, value); err != nil {
		return fmt.Errorf("change of %s to %d (edgeway.service needs the drop-in ipvs.conf): %w", path, value, err)
	}
	return nil
}
