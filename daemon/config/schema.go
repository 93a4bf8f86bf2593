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

// key is one setting. doc is plain text for the comment in edgeway.toml and for the paragraph in the manual page. Both
// the comment and the paragraph append the value's limits to doc.
type key struct {
	name  string
	doc   string
	value value
}

// schema binds every key to its field in c. backends are the allowed values of proxy.backend.
func schema(c *Config, backends []proxiers.Component) []section {
	before := []section{
		nodeSection(&c.Node),
		kubeSection(&c.Source.Kube),
		fileSection(&c.Source.File),
		lastKnownSection(&c.Source.LastKnown),
		proxySection(&c.Proxy, backends),
	}
	after := []section{
		{"routes", "The routes that Edgeway adds to this host, with the routing protocol \"edgeway\" " +
			"(119). \"edgeway cleanup\" removes these routes.", []key{
			{
				"services", "Routes to the ranges of ClusterIPs, and to each other address of a " +
					"Service. Without a route, the kernel rejects the host's own connections to Services. auto: " +
					"Edgeway adds a route if the host has no route to the address, for example because it has " +
					"no default route. always: Edgeway also adds a route if the host has only a less specific " +
					"route to a range. never: no routes. Without a default route, the host's own connections to " +
					"ClusterIPs have the address of the link on which they leave.",
				oneOf(&c.Routes.Services, RoutesAuto, RoutesAlways, RoutesNever),
			},
		}},
		conntrackSection(&c.Conntrack),
		fastPathSection(&c.FastPath),
		checksSection(&c.Checks.TCP),
		doctorSection(&c.Doctor),
		{"health", "Health over HTTP, for load balancers and monitoring.", []key{
			{"address", "The address of /healthz, /livez and /readyz. Empty: Edgeway does not serve these paths.", listen(&c.Health.Address)},
		}},
		metricsSection(&c.Metrics),
		{"log", "The log, on standard error.", []key{
			{"level", "The lowest level of the messages that Edgeway writes.", logLevel(&c.Log.Level)},
			{"format", "The format of the log.", oneOf(&c.Log.Format, "text", "json")},
		}},
		{"control", "The socket on which the commands status, plan, explain, doctor and reload reach the daemon.", []key{
			{
				"socket", "The path of the socket through which commands reach the daemon. The " +
					"daemon's user and group can query the daemon. Only root and the daemon's user can reload.",
				path(&c.Control.Socket, required),
			},
		}},
	}
	return slices.Concat(before, ownSections(c), after)
}

func nodeSection(n *Node) section {
	return section{"node", "The names and addresses of this host. The host needs no Node object.", []key{
		{
			"name", "The name of the Node object that Edgeway reads. Endpoints with this node name run on this " +
				"host. Empty: the host's name in lower case.",
			str(&n.Name, nodeName),
		},
		{
			"addresses", "The host's own addresses, at most one of each family. On a host without a " +
				"default route, \"primary\" in proxy.nodeport_addresses needs this key. Empty: the addresses of " +
				"the Node object or, without one, those of the default route.",
			list(&n.Addresses, parseAddr),
		},
		{
			"zone", "The zone of this host, for topology hints. Empty: the label topology.kubernetes.io/zone of " +
				"the Node object.",
			str(&n.Zone, labelValue),
		},
		{
			"local_policy", "What the traffic policy Local means on a host without a Node object, " +
				"which has no local endpoints. drop: Edgeway drops the connection, as Kubernetes does. cluster: " +
				"Edgeway uses the endpoints of the whole cluster.",
			oneOf(&n.LocalPolicy, LocalDrop, LocalCluster),
		},
	}}
}

func kubeSection(k *Kube) section {
	return section{"source.kube", "Services from an API server.", []key{
		{"kubeconfig", "The kubeconfig, which names the API server and the credentials. Edgeway reads " +
			"the kubeconfig again when the kubeconfig, or a file that it names, changes. Empty: no API server.", path(&k.Kubeconfig, optional)},
		{"namespaces", "The namespaces that Edgeway watches. Empty: all.", list(&k.Namespaces, parseNamespace)},
		{
			"label_selector", "The labels of the Services and EndpointSlices that Edgeway watches, as " +
				"in \"edge in (yes, all)\". Services and EndpointSlices both need the labels: Kubernetes copies " +
				"the labels of a Service to its EndpointSlices.",
			str(&k.LabelSelector, labelSelector),
		},
		{
			"allow_exec_plugins", "Whether a kubeconfig may name a program that fetches the credentials. Edgeway " +
				"runs that program with its own privileges.",
			boolean(&k.AllowExecPlugins),
		},
	}}
}

func fileSection(f *File) section {
	return section{"source.file", "Services from manifest files, alone or together with an API server.", []key{
		{
			"paths", "Manifests: files, and folders whose *.yaml, *.yml and *.json files Edgeway " +
				"reads. Manifests contain Services, EndpointSlices, Nodes and ServiceCIDRs. Edgeway reads a " +
				"manifest again when it changes. If a path, a file or a document is unusable, Edgeway removes " +
				"nothing. An empty file, or a folder without files, is unusable: to remove all Services of a " +
				"file or folder, leave a file with a comment.",
			paths(&f.Paths),
		},
	}}
}

func lastKnownSection(l *LastKnown) section {
	return section{"source.lastknown", "The last-known state of the API server and of the manifests. " +
		"Edgeway uses this state at its start if a source is unreadable.", []key{
		{
			"directory", "The folder of the last-known state. Its subfolder manifests contains the state " +
				"of the manifests. Edgeway writes the state at SIGTERM, and otherwise at most 1 GB a day: a power " +
				"cut loses the changes of the last minutes (at most 20 minutes with 10,000 Services).",
			path(&l.Directory, required),
		},
	}}
}

// describe returns " NAME: DOC." for each backend.
func describe(backends []proxiers.Component) string {
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

const alwaysRefused = "This key does not apply to Services from manifests. Edgeway always refuses " +
	"addresses that are loopback, link-local, multicast, broadcast or reserved, and the addresses of the API " +
	"server, of default gateways and of the clouds' metadata services. At an address of this host, Edgeway " +
	"always refuses the TCP ports of health.address, metrics.address, health checks and an API server on this " +
	"host."

const metadataAdvice = "On a host in a cloud, add the addresses of its metadata service, such as " +
	"\"168.63.129.16/32\" (Azure), \"100.100.100.200/32\" (Alibaba), \"192.0.0.192/32\" and " +
	"\"fd00:c1::a9fe:a9fe/128\" " +
	"(Oracle), \"fd00:ec2::254/128\" (AWS), \"fd20:ce::254/128\" (Google) or \"fd00:42::42/128\" (Scaleway): the " +
	"metadata service returns this host's credentials. Edgeway never uses 169.254.169.254, which is link-local."

func proxySection(p *Proxy, backends []proxiers.Component) section {
	return section{"proxy", "How Edgeway handles connections.", slices.Concat(trafficKeys(p, backends), addressKeys(p))}
}

// trafficKeys returns the keys for the backend, pods and masquerading.
func trafficKeys(p *Proxy, backends []proxiers.Component) []key {
	return []key{
		{
			"backend", "The backend, which programs the kernel." + describe(backends) + " On a reload with another " +
				"backend, the previous rules stay until the new backend has programmed the kernel.",
			oneOf(&p.Backend, names(backends)...),
		},
		{
			"fallback", "The backend that Edgeway uses if this host cannot run proxy.backend, because a " +
				"program, a kernel module or a kernel feature is missing. Edgeway chooses the backend at its start " +
				"and at each reload. none: if this host cannot run proxy.backend, the daemon does not start.",
			oneOf(&p.Fallback, append(names(backends), FallbackNone)...),
		},
		{"ip_families", "The address families, \"IPv4\" and \"IPv6\". Empty: the families that the host has.", list(&p.IPFamilies, parseFamily)},
		{
			"local_detection", "How Edgeway recognizes packets of pods that run on this host. " +
				"cluster_cidr: by cluster_cidrs. node_cidr: by the pod CIDRs of the Node object. " +
				"bridge_interface and interface_name_prefix: by the interface on which a packet arrives. none: " +
				"no pods run on this host, and packets to ClusterIPs keep their source address.",
			oneOf(&p.LocalDetection, DetectNone, DetectClusterCIDR, DetectNodeCIDR, DetectBridge, DetectPrefix),
		},
		{"cluster_cidrs", "The ranges of the pods' addresses, for local_detection = \"cluster_cidr\".", list(&p.ClusterCIDRs, parsePrefix)},
		{"bridge_interface", "The bridge of the pods, for local_detection = \"bridge_interface\".", str(&p.BridgeInterface, bridgeName)},
		{"interface_name_prefix", "The beginning of the names of the pods' interfaces, for local_detection = " +
			"\"interface_name_prefix\".", str(&p.InterfaceNamePrefix, interfacePrefix)},
		{"masquerade_all", "Whether every connection to a ClusterIP gets this host's address as its source.", boolean(&p.MasqueradeAll)},
		{
			"masquerade_bit", "The number of the packet mark's bit that means \"masquerade this packet\". " +
				"Packets of Edgeway's own connections have the bit two positions lower (12 for 14; 30 for 0 and 31 " +
				"for 1), and no rule redirects, rejects or drops these packets. Edgeway does not change other bits.",
			integer(&p.MasqueradeBit, 0, 31),
		},
	}
}

// addressKeys returns the keys that restrict the addresses and ports of Services and endpoints.
func addressKeys(p *Proxy) []key {
	return []key{
		{
			"nodeport_addresses", "The host's addresses that accept NodePorts: ranges, \"primary\" for " +
				"node.addresses, \"localhost\" for 127.0.0.1 and ::1, and \"all\" (or 0.0.0.0/0 and ::/0) for all " +
				"addresses except loopback. " +
				"On 127.0.0.1 and ::1, a relay in the daemon serves TCP only, and only if the list has " +
				"\"localhost\" or a range within 127.0.0.0/8 or ::1/128. Empty: none.",
			nodePortAddresses(&p.NodePortAddresses),
		},
		{
			"service_cidrs", "The ranges of the ClusterIPs. Edgeway drops connections to unused " +
				"addresses in these ranges, and refuses external IPs in these ranges. Edgeway adds the ranges " +
				"of ServiceCIDR objects, except ranges that overlap a network of this host. Edgeway drops no " +
				"connections to a range that contains the address of the API server, of the proxy to the API " +
				"server or of a default gateway, or that overlaps a network of this host; the status shows an " +
				"overlap as a problem. If a range overlaps a route through a gateway or a tunnel, the status " +
				"shows a notice.",
			list(&p.ServiceCIDRs, parsePrefix),
		},
		{
			"nodeport_range", "The range of the NodePorts and health check ports that Edgeway serves " +
				"for Services from the API server. The range keeps Services from using the ports of programs of " +
				"this host. If a Service has a port outside the range, the status reports the host as degraded. " +
				"This key does not apply to Services from manifests. Edgeway always refuses the TCP ports of " +
				"health.address, metrics.address and an API server on this host.",
			portRange(&p.NodePortRange),
		},
		{
			"allow_external_ips", "The external IPs that Edgeway serves for Services from the API " +
				"server. The default is none, because a user who can write Services can otherwise receive this " +
				"host's connections to any address (CVE-2020-8554). \"host\" means the addresses of this host. A " +
				"range means all other addresses in the range. Edgeway refuses an external IP in a range of " +
				"ClusterIPs. " + alwaysRefused,
			hostRanges(&p.AllowExternalIPs),
		},
		{
			"allow_load_balancer_ips", "The load-balancer addresses that Edgeway serves. \"host\" means " +
				"the addresses of this host, such as addresses that keepalived, kube-vip or DSR add. A range " +
				"means all other addresses in the range. A user who can write the status of Services can claim " +
				"any of these addresses. This key does not apply to Services from manifests. Edgeway always " +
				"refuses the addresses and ports that it always refuses for allow_external_ips.",
			hostRanges(&p.AllowLoadBalancers),
		},
		{
			"deny_endpoints", "Edgeway uses no endpoint in these ranges, so that no Service leads to a " +
				"program that only this host should reach. \"host\" means the addresses of this host in " +
				"EndpointSlices of the API server, while the host has no Node object. Manifests can always " +
				"contain endpoints on this host. " + metadataAdvice,
			hostRanges(&p.DenyEndpoints),
		},
	}
}

func fastPathSection(f *FastPath) section {
	return section{"fastpath", "The fast path: the kernel's flowtable forwards long-lived TCP and UDP " +
		"connections of Services that opt in from device to device, without evaluating rules (KEP-4963). A " +
		"Service opts in through the annotation edgeway.io/traffic-hint: LongLived, in manifests also through " +
		"spec.trafficHint, or through fastpath.services.", []key{
		{"enabled", "Whether established connections of Services that opt in use the fast path.", boolean(&f.Enabled)},
		{"services", "Services that use the fast path, as \"namespace/name\", in addition to Services that opt in " +
			"themselves.", list(&f.Services, parseServiceName)},
	}}
}

func conntrackSection(c *Conntrack) section {
	return section{"conntrack", "Connection tracking, which the whole host shares.", []key{
		{
			"max_per_core", "Edgeway raises nf_conntrack_max to this number times the number of CPUs, but to at " +
				"least 131072 and at most 1048576. Edgeway never lowers the limit. With 0, Edgeway does not " +
				"change the limit.",
			integer(&c.MaxPerCore, 0, 1<<20),
		},
	}}
}

func checksSection(t *TCPChecks) section {
	return section{"checks.tcp", "Checks of endpoints, by TCP connections from this host. An endpoint that does " +
		"not answer gets no new connections until it answers again. While no endpoint of a Service answers, all of " +
		"them stay in use.", []key{
		{
			"sources", "The sources whose endpoints Edgeway checks with TCP connections. file: the " +
				"manifests, whose readiness no controller updates. kube: the API server, in addition to the " +
				"readiness that it reports. Empty: none. Edgeway checks each TCP port of an endpoint. The UDP " +
				"and SCTP ports count as dead when no TCP port of the EndpointSlice answers.",
			list(&t.Sources, parseCheckedSource),
		},
		{"interval", "The time between two checks of an endpoint. The endpoint must accept the connection within " +
			"half of this time, and within 5s. Edgeway makes at most 1000 checks a second: with many endpoints, it " +
			"checks each endpoint less often.", duration(&t.Interval, 200*time.Millisecond, time.Hour)},
		{
			"failures", "The number of consecutive failed checks after which an endpoint gets no new " +
				"connections. After two consecutive successful checks, the endpoint gets new connections again.",
			integer(&t.Failures, 1, 100),
		},
	}}
}

func doctorSection(d *Doctor) section {
	return section{"doctor", "The faults that the commands status, doctor and config check list.", []key{
		{
			"ignore", "The IDs of notices that you accept, as in \"no-endpoint\": status, doctor, config check and " +
				"the log leave these notices out, and status names the IDs. " +
				"Problems, warnings and unhealthy faults are always shown. troubleshooting.md in " +
				"/usr/share/doc/edgeway lists the IDs.",
			list(&d.Ignore, parseFaultID),
		},
	}}
}

func metricsSection(m *Metrics) section {
	return section{"metrics", "Metrics over HTTP, for Prometheus.", []key{
		{"address", "The address of /metrics. Empty: Edgeway does not serve metrics.", listen(&m.Address)},
		{"web_config", "A file with the keys tls_server_config and basic_auth_users, like " +
			"--web.config.file of Prometheus' exporters. Edgeway reads the file again for each connection. " +
			"Empty: plain HTTP for all clients.", path(&m.WebConfig, optional)},
		{"pprof", "Whether Edgeway serves /debug/pprof at the address of the metrics: to clients on this host, and " +
			"to other hosts only if web_config has basic_auth_users.", boolean(&m.Pprof)},
		{"services", "Whether Edgeway counts the new connections of each Service, for edgeway services -o wide and the " +
			"metric edgeway_service_connections_total. The iptables backends do not count.", boolean(&m.Services)},
	}}
}
