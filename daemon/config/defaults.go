package config

import (
	"log/slog"
	"net/netip"
	"time"

	"edgeway/proxiers"
)

// defaultBackend is the name of the default backend and of its section.
const defaultBackend = "nftables"

// Default returns the configuration for an empty file. The default configuration contains no source and no node name,
// so the daemon cannot run with it.
func Default() *Config {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	return &Config{
		Node:   Node{LocalPolicy: LocalDrop},
		Source: Source{LastKnown: LastKnown{Directory: "/var/lib/edgeway"}},
		Proxy: Proxy{
			Backend:            defaultBackend,
			Fallback:           "iptables",
			LocalDetection:     DetectNone,
			MasqueradeBit:      14,
			NodePortAddresses:  NodePortAddresses{Primary: true},
			AllowLoadBalancers: HostRanges{Prefixes: everything},
			DenyEndpoints:      HostRanges{Host: true},
			NodePortRange:      PortRange{30000, 32767},
		},
		Routes:    Routes{Services: RoutesAuto},
		Conntrack: Conntrack{MaxPerCore: 32768},
		Checks:    Checks{TCP: TCPChecks{Interval: time.Second, Failures: 2}},
		Health:    Health{Address: ":10256"},
		Metrics:   Metrics{Address: "127.0.0.1:10249"},
		Log:       Log{Level: slog.LevelInfo, Format: "text"},
		Control:   Control{Socket: DefaultSocket},
	}
}

// defaultConfig returns the default configuration, including the backends' sections.
func defaultConfig(backends []proxiers.Component) *Config {
	c := Default()
	for _, b := range backends {
		if len(b.Settings) == 0 {
			continue
		}
		own := Section{b.Name, b.Settings, map[string]any{}}
		for _, s := range b.Settings {
			own.Values[s.Name] = s.Default
		}
		c.Sections = append(c.Sections, own)
	}
	return c
}
