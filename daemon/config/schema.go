package config

import (
	"slices"
	"strings"
	"time"

	"edgeway/proxiers"
)

// section is one table of the configuration file.
type section struct {
	name string // such as "source.kube"
	doc  string
	keys []key
}

// key is one setting. doc describes the key in plain text, for edgeway.toml and for the manual page. In both files, the
// value's limits follow the description.
type key struct {
	name  string
	doc   string
	value value
}

// schema binds every key to its field in c. backends holds the allowed values of proxy.backend.
func schema(c *Config, backends []proxiers.Component) []section {
	before := []section{
		nodeSection(&c.Node),
		kubeSection(&c.Source.Kube),
		fileSection(&c.Source.File),
		lastKnownSection(&c.Source.LastKnown),
		proxySection(&c.Proxy, backends),
	}
	after := []section{
		{"routes", "Kernel routes that Edgeway adds to this host, with the routing protocol \"edgeway\" (119). " +
			"\"edgeway cleanup\" removes the routes that Edgeway added.", []key{
			{
				"services", "Determines when Edgeway adds kernel routes to ClusterIP ranges and other Service " +
					"addresses. Without a route, the kernel rejects the host's own connections to Services. auto: " +
					"Edgeway adds a route if the host has no route to the address, for example because the host has " +
					"no default route. always: Edgeway also adds a route to a range if the host has only a less " +
					"specific route. never: Edgeway adds no routes. If the host has no default route, its own " +
					"connections to ClusterIPs use the address of the outgoing interface.",
				oneOf(&c.Routes.Services, RoutesAuto, RoutesAlways, RoutesNever),
			},
		}},
		conntrackSection(&c.Conntrack),
		fastPathSection(&c.FastPath),
		checksSection(&c.Checks.TCP),
		doctorSection(&c.Doctor),
		{"health", "Health status over HTTP, for load balancers and monitoring.", []key{
			{"address", "The address at which Edgeway serves /healthz, /livez and /readyz. If this key is empty, " +
				"Edgeway serves none of these paths.", listenAddress(&c.Health.Address)},
		}},
		metricsSection(&c.Metrics),
		{"log", "The log, on standard error.", []key{
			{"level", "The minimum level of the messages that Edgeway logs.", logLevel(&c.Log.Level)},
			{"format", "The format of the log.", oneOf(&c.Log.Format, "text", "json")},
		}},
		{"control", "The socket through which commands such as status, plan, explain " +
			"and reload reach the daemon.", []key{
			{
				"socket", "The path of the socket. The daemon's user and group can query the daemon. Only root and " +
					"the daemon's user can reload the daemon.",
				path(&c.Control.Socket, required),
			},
		}},
	}
	return slices.Concat(before, ownSections(c), after)
}

func nodeSection(n *Node) section {
	return section{"node", "The name, addresses and zone of this host. The host does not need a Node object.", []key{
		{
			"name", "The name of the Node object that Edgeway reads. Edgeway assumes that endpoints with this node " +
				"name run on this host. The default is the host name in lower case.",
			str(&n.Name, nodeName),
		},
		{
			"addresses", "The host's own addresses, at most one per address family. If the host has no default " +
				"route, \"primary\" in proxy.nodeport_addresses needs this key. By default, Edgeway uses the " +
				"addresses in the Node object or, without a Node object, the source addresses of the default routes.",
			list(&n.Addresses, parseAddr),
		},
		{
			"zone", "The zone of this host, for topology hints. The default is the Node object's label " +
				"topology.kubernetes.io/zone.",
			str(&n.Zone, labelValue),
		},
		{
			"local_policy", "How Edgeway handles connections to a Service with the traffic policy Local if this " +
				"host has no Node object, and therefore no local endpoints. drop: Edgeway drops the connections, " +
				"as Kubernetes does. cluster: Edgeway uses the endpoints of the whole cluster.",
			oneOf(&n.LocalPolicy, LocalDrop, LocalCluster),
		},
	}}
}

func kubeSection(k *Kube) section {
	return section{"source.kube", "Services from an API server.", []key{
		{"kubeconfig", "The path of the kubeconfig, which names the API server and the credentials. Edgeway rereads " +
			"the kubeconfig when the kubeconfig or a file that it names changes. If this key is " +
			"empty, Edgeway uses no API server.", path(&k.Kubeconfig, optional)},
		{"namespaces", "The namespaces that Edgeway watches. If the list is " +
			"empty, Edgeway watches all namespaces.", list(&k.Namespaces, parseNamespace)},
		{
			"label_selector", "A label selector for the Services and EndpointSlices that Edgeway watches, such as " +
				"\"edge in (yes, all)\". Services and EndpointSlices must both match the selector. Kubernetes " +
				"copies a Service's labels to its EndpointSlices.",
			str(&k.LabelSelector, labelSelector),
		},
		{
			"allow_exec_plugins", "Whether a kubeconfig may name a program that fetches credentials. The " +
				"program runs with Edgeway's privileges.",
			boolean(&k.AllowExecPlugins),
		},
	}}
}

func fileSection(f *File) section {
	return section{"source.file", "Services from manifest files, alone or together with an API server.", []key{
		{
			"paths", "The paths of manifest files, and of directories whose *.yaml, *.yml and *.json files Edgeway " +
				"reads. Manifests contain Services, EndpointSlices, Nodes and ServiceCIDRs. Edgeway rereads a " +
				"manifest when it changes. If a path, a file or a document is unusable, Edgeway " +
				"removes no objects. A file or directory that becomes empty counts as unusable. To remove all Services " +
				"in a file or directory, leave a file that contains only a comment.",
			paths(&f.Paths),
		},
	}}
}

func lastKnownSection(l *LastKnown) section {
	return section{"source.lastknown", "The last-known state of the API server and of the manifests. Edgeway uses " +
		"the last-known state if a source is unreadable when Edgeway starts.", []key{
		{
			"directory", "The directory for the last-known state. The subdirectory \"manifests\" contains the state " +
				"of the manifests. Edgeway saves the state when it receives SIGTERM. While Edgeway is running, it " +
				"also saves changes, but writes at most 1 GB per day. After a power failure, the saved state lacks " +
				"the changes from the last few minutes (at most 20 minutes with 10,000 Services).",
			path(&l.Directory, required),
		},
	}}
}

// backendDocs returns " NAME: DOC." for each backend.
func backendDocs(backends []proxiers.Component) string {
	var b strings.Builder
	for _, c := range backends {
		b.WriteString(" " + c.Name + ": " + c.Doc + ".")
	}
	return b.String()
}

func names(backends []proxiers.Component) []string {
	out := make([]string, len(backends))
	for i, c := range backends {
		out[i] = c.Name
	}
	return out
}

const alwaysRefused = "This key does not apply to Services from manifests. Edgeway always refuses loopback, " +
	"link-local, multicast, broadcast and reserved addresses, and the addresses of the API server, default " +
	"gateways and cloud metadata services. At this host's addresses, Edgeway always refuses the TCP ports of " +
	"health.address, metrics.address, health checks and an API server on this host."

const metadataAdvice = "On a cloud host, add the addresses of the cloud's metadata service, such as " +
	"\"168.63.129.16/32\" (Azure), \"100.100.100.200/32\" (Alibaba), \"192.0.0.192/32\" and " +
	"\"fd00:c1::a9fe:a9fe/128\" (Oracle), \"fd00:ec2::254/128\" (AWS), \"fd20:ce::254/128\" (Google) or " +
	"\"fd00:42::42/128\" (Scaleway). The metadata service can reveal this host's credentials. Edgeway never uses " +
	"169.254.169.254, which is link-local."

func proxySection(p *Proxy, backends []proxiers.Component) section {
	return section{"proxy", "How Edgeway handles connections.", slices.Concat(trafficKeys(p, backends), addressKeys(p))}
}

// trafficKeys returns the keys that configure the backend, pod detection and masquerading.
func trafficKeys(p *Proxy, backends []proxiers.Component) []key {
	return []key{
		{
			"backend", "The backend, which programs the kernel." + backendDocs(backends) + " If a reload changes the " +
				"backend, the previous rules stay until the new backend has programmed the kernel.",
			oneOf(&p.Backend, names(backends)...),
		},
		{
			"fallback", "The backend that Edgeway uses if this host cannot run proxy.backend, because a program, a " +
				"kernel module or a kernel feature is missing. Edgeway chooses the backend when it starts and at " +
				"each reload. none: if this host cannot run proxy.backend, the daemon does not start.",
			oneOf(&p.Fallback, append(names(backends), FallbackNone)...),
		},
		{"ip_families", "The address families that Edgeway serves, \"IPv4\" and \"IPv6\". The default is the " +
			"address families that the host supports.", list(&p.IPFamilies, parseFamily)},
		{
			"local_detection", "How Edgeway recognizes packets from pods that run on this host. cluster_cidr: by " +
				"a source address in cluster_cidrs. node_cidr: by a source address in a " +
				"pod CIDR of the Node object. bridge_interface and interface_name_prefix: by the interface that " +
				"receives the packet. none: Edgeway assumes that no pods run on this host, and packets to " +
				"ClusterIPs keep their source address.",
			oneOf(&p.LocalDetection, DetectNone, DetectClusterCIDR, DetectNodeCIDR, DetectBridge, DetectPrefix),
		},
		{"cluster_cidrs", "The pod address ranges, for " +
			"local_detection = \"cluster_cidr\".", list(&p.ClusterCIDRs, parsePrefix)},
		{"bridge_interface", "The bridge that pods are attached to, " +
			"for local_detection = \"bridge_interface\".", str(&p.BridgeInterface, bridgeName)},
		{"interface_name_prefix", "The prefix of the names of pod interfaces, for local_detection = " +
			"\"interface_name_prefix\".", str(&p.InterfaceNamePrefix, interfacePrefix)},
		{"masquerade_all", "Whether Edgeway replaces the source address of every connection to a ClusterIP with " +
			"this host's address.", boolean(&p.MasqueradeAll)},
		{
			"masquerade_bit", "The number of the packet mark bit that means \"masquerade this packet\". Edgeway " +
				"marks the packets of its own connections with the bit two positions lower (12 for 14; 30 for 0 and " +
				"31 for 1). Edgeway's rules do not redirect, reject or drop packets with this bit. Edgeway " +
				"does not change other bits of the mark.",
			integer(&p.MasqueradeBit, 0, 31),
		},
	}
}

// addressKeys returns the keys that restrict the addresses and ports of Services and endpoints.
func addressKeys(p *Proxy) []key {
	return []key{
		{
			"nodeport_addresses", "The host's addresses that accept connections to NodePorts. The list can contain " +
				"ranges, \"primary\" for node.addresses, \"localhost\" for 127.0.0.1 and ::1, and \"all\" (or " +
				"0.0.0.0/0 and ::/0) for all addresses except loopback. On 127.0.0.1 and ::1, a relay in the daemon " +
				"serves NodePorts, but only for TCP. To enable the relay, list \"localhost\" or a range within " +
				"127.0.0.0/8 or ::1/128. If the list is empty, no address accepts connections to NodePorts.",
			nodePortAddresses(&p.NodePortAddresses),
		},
		{
			"service_cidrs", "The ClusterIP ranges. Edgeway drops connections to unused addresses in these " +
				"ranges, and refuses external IPs in them. Edgeway adds the ranges of ServiceCIDR " +
				"objects, except ranges that overlap one of this host's networks. If a range contains the address of " +
				"the API server, of the proxy to the API server or of a default gateway, Edgeway drops no " +
				"connections to this range. If a range overlaps one of this host's networks, Edgeway drops no " +
				"connections to the range, and the status shows a problem. If a range overlaps a route through a " +
				"gateway or a tunnel, the status shows a notice.",
			list(&p.ServiceCIDRs, parsePrefix),
		},
		{
			"nodeport_range", "The range of NodePorts and health check ports that Edgeway serves for Services from " +
				"the API server. The range prevents Services from using ports that programs on this host need. If " +
				"a Service has a port outside the range, the status reports the host as degraded. This key does " +
				"not apply to Services from manifests. Edgeway always refuses the TCP ports of health.address, " +
				"metrics.address and an API server on this host.",
			portRange(&p.NodePortRange),
		},
		{
			"allow_external_ips", "The external IPs that Edgeway serves for Services from the API server. By " +
				"default, Edgeway serves no external IPs, because a user who can write Services could otherwise " +
				"receive this host's connections to any address (CVE-2020-8554). \"host\" means this host's " +
				"addresses. A range never includes this host's own addresses. Edgeway refuses " +
				"external IPs in a ClusterIP range. " + alwaysRefused,
			hostRanges(&p.AllowExternalIPs),
		},
		{
			"allow_load_balancer_ips", "The load-balancer addresses that Edgeway serves. \"host\" means this host's " +
				"addresses, including addresses for DSR and addresses that keepalived or kube-vip adds. A range " +
				"includes only addresses that do not belong to this host. A user who can write a Service's status " +
				"can request any address that this key allows. This key does not apply to Services from manifests. " +
				"Edgeway always refuses the same addresses and ports as for allow_external_ips.",
			hostRanges(&p.AllowLoadBalancers),
		},
		{
			"deny_endpoints", "Edgeway uses no endpoints in these ranges, so no Service can expose a program that " +
				"only this host should reach. \"host\" means this host's addresses. \"host\" applies only to " +
				"EndpointSlices from the API server, and only if the host has no Node object. Manifests can always " +
				"contain endpoints on this host. " + metadataAdvice,
			hostRanges(&p.DenyEndpoints),
		},
	}
}

func fastPathSection(f *FastPath) section {
	return section{"fastpath", "The fast path (KEP-4963). For Services that opt in, the kernel's flowtable forwards " +
		"long-lived TCP and UDP connections from one network device to another, without evaluating rules. A Service " +
		"opts in through the annotation edgeway.io/traffic-hint: LongLived, or through fastpath.services. A Service " +
		"in a manifest can also opt in through spec.trafficHint.", []key{
		{"enabled", "Whether the fast path forwards established connections to Services that " +
			"opt in.", boolean(&f.Enabled)},
		{"services", "The names of Services that use the fast path, in the form \"namespace/name\", in addition to " +
			"the Services that opt in themselves.", list(&f.Services, parseServiceName)},
	}}
}

func conntrackSection(c *Conntrack) section {
	return section{"conntrack", "Connection tracking settings, which apply to the whole host.", []key{
		{
			"max_per_core", "Edgeway raises nf_conntrack_max to this number times the number of CPUs, but to at " +
				"least 131072 and at most 1048576. Edgeway never lowers nf_conntrack_max. If this key is 0, Edgeway " +
				"does not change nf_conntrack_max.",
			integer(&c.MaxPerCore, 0, 1<<20),
		},
	}}
}

func checksSection(t *TCPChecks) section {
	return section{"checks.tcp", "Endpoint checks over TCP from this host. An endpoint that does not " +
		"respond gets no new connections until it responds again. While no endpoint of a Service responds, Edgeway " +
		"uses all of the Service's endpoints.", []key{
		{
			"sources", "The sources whose endpoints Edgeway checks with TCP connections. file: endpoints in " +
				"manifests, whose readiness no controller updates. kube: endpoints from the API server, whose " +
				"reported readiness Edgeway also considers. If the list is empty, Edgeway checks no endpoints. " +
				"Edgeway checks each TCP port of an endpoint. UDP and SCTP ports count as dead if none of the " +
				"EndpointSlice's TCP ports responds.",
			list(&t.Sources, parseCheckedSource),
		},
		{
			"interval", "The time between two checks of an endpoint. The endpoint must accept the connection within " +
				"half of this time or 5s, whichever is shorter. Edgeway runs at most 1000 checks per second, so it " +
				"checks each endpoint less often if there are many endpoints.",
			duration(&t.Interval, 200*time.Millisecond, time.Hour),
		},
		{
			"failures", "The number of consecutive checks that must fail before an endpoint gets no new " +
				"connections. After two consecutive successful checks, the endpoint gets new connections again.",
			integer(&t.Failures, 1, 100),
		},
	}}
}

func doctorSection(d *Doctor) section {
	return section{"doctor", "The faults that the commands \"status\", \"doctor\" and \"config check\" report.", []key{
		{
			"ignore", "The IDs of notices that you accept, such as \"no-endpoint\". status, doctor, config check " +
				"and the log omit these notices, and status lists the IDs. You cannot hide problems, warnings or " +
				"faults that make the host unhealthy. troubleshooting.md in /usr/share/doc/edgeway lists the IDs.",
			list(&d.Ignore, parseFaultID),
		},
	}}
}

func metricsSection(m *Metrics) section {
	return section{"metrics", "Metrics over HTTP, for Prometheus.", []key{
		{"address", "The address at which Edgeway serves /metrics. If this key is " +
			"empty, Edgeway does not serve metrics.", listenAddress(&m.Address)},
		{"web_config", "The path of a file with the keys tls_server_config and basic_auth_users, as in a web " +
			"configuration file of a Prometheus exporter. Edgeway rereads the file for each connection. If this key " +
			"is empty, Edgeway serves plain HTTP to all clients.", path(&m.WebConfig, optional)},
		{"pprof", "Whether Edgeway serves /debug/pprof at metrics.address. Clients on other hosts get access only " +
			"if web_config contains basic_auth_users.", boolean(&m.Pprof)},
		{
			"services", "Whether Edgeway counts the new connections to each Service, for the metric " +
				"edgeway_service_connections_total and for edgeway services -o wide. The iptables backends do not " +
				"support this key.",
			boolean(&m.Services),
		},
	}}
}
