package ipvs

import (
	"cmp"
	"fmt"
	"os"

	"edgeway/proxiers"
)

// settings are those of the configuration's section.
type settings struct {
	scheduler string
	strictARP bool
}

func settingsOf(env proxiers.Env) settings {
	return settings{scheduler: cmp.Or(env.Settings["scheduler"], defaultScheduler), strictARP: env.Settings["strict_arp"] == "true"}
}

// defaultScheduler is kube-proxy's.
const defaultScheduler = "rr"

// applySysctls makes IPVS work with connection tracking, and has a client whose connection IPVS still knows choose anew when its endpoint
// is gone. They are those of the network namespace.
func (s settings) applySysctls() error {
	values := map[string]string{sysctls + "conntrack": "1", sysctls + "expire_nodest_conn": "1"}
	if s.strictARP {
		values["/proc/sys/net/ipv4/conf/all/arp_ignore"], values["/proc/sys/net/ipv4/conf/all/arp_announce"] = "1", "2"
	}
	for path, value := range values {
		if err := setSysctl(path, value); err != nil {
			return err
		}
	}
	return nil
}

// setSysctl writes only what differs: the daemon may be allowed to read alone.
func setSysctl(path, value string) error {
	have, err := os.ReadFile(path)
	if err == nil && string(have) == value+"\n" {
		return nil
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0); err != nil {
		return fmt.Errorf("setting %s to %s (the unit's drop-in for this backend allows it): %w", path, value, err)
	}
	return nil
}
