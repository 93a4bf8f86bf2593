package fault

// IDs returns the IDs of all faults, in alphabetical order. packaging/doc/troubleshooting.md has a section for each ID.
func IDs() []string {
	return []string{
		"api-server", "backend", "backend-key", "backend-sync", "clock", "configuration", "connect", "conntrack",
		"credential-expiry",
		"daemon", "drop-ins", "duplicate-service", "endpoint-checks", "fallback", "fast-path", "firewall", "first-sync",
		"follower-conntrack", "follower-flowtable", "follower-healthcheck", "follower-localnodeport",
		"follower-serviceroutes", "ip-forward", "ipv6-forward", "kubeconfig", "kubeconfig-insecure",
		"kubeconfig-refused", "last-known", "leftovers", "manifests", "no-endpoint", "node-leaving",
		"nodeport-addresses", "nodeport-range", "object", "panic", "permissions", "ports", "quarantine",
		"refused-address", "removed-key",
		"route-endpoints", "route-services", "rp-filter", "sandbox", "service-range-network", "service-range-route",
		"service-ranges", "services", "services-dead",
		"services-too-big", "shortcut", "source-file", "source-kube",
		"sources", "systemd", "trace",
		"web-config",
	}
}
