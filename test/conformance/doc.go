// Package conformance is the suite that every backend passes: it applies plans through the backend in
// a lab of network namespaces, makes real connections, and compares what became of them with
// plan.Decide.
//
// Run is all that a backend's test calls. The scenarios are testdata/*.txtar, one or more rows of
// behaviour each; adding one is adding a file:
//
//	What the scenario shows (free text).
//
//	-- plan --
//	service web
//	  cluster pod-a pod-b far-a:9090
//	  local   pod-a pod-b
//	  ClusterIP cluster-1:80  pod=cluster host=cluster outside=cluster+snat
//	  NodePort 30080          pod=cluster host=cluster+snat outside=local
//	-- flows --
//	pod-c    -> cluster-1:80  pod-a pod-b far-a:9090
//	pod-a    -> cluster-1:80  pod-a+snat pod-b far-a:9090
//	client-a -> node-1:30080  pod-a pod-b
//	client-a -> node-3:30080  pass
//
// Every line of flows is held against plan.Decide first and against packets then, over each protocol
// and family. On the left are a source and a destination, on the right the endpoints that must be
// reached, all of them and no other, or reject, drop or pass (the packet is left alone). An endpoint
// with +snat must see an address of the node as its peer, one without must see the source itself.
// "host@lb-1" is the host with lb-1 as its source address, and has that address on lo;
// "host@" is the host by a socket that is not bound to an address.
//
// A service line names a Service that has the ports below it over TCP, UDP and SCTP, IPv4 and IPv6; a
// line "for TCP IPv4" narrows that, and in flows it narrows the lines that follow. The lines of
// a Service are "for", "affinity DURATION", "cluster ENDPOINT...", "local ENDPOINT..." and its
// frontends: kind, address and port, optionally "from SOURCE..." (names, prefixes or "nowhere") for
// loadBalancerSourceRanges, and the route of each origin as origin=pool[+snat], origin=reject or
// origin=drop, where "all" means the three of them. Lines about the node come before the first service:
// "pods source" (the default), "pods interface" or "pods unknown" say how the plan tells pods,
// "nodeports ADDRESS..." which addresses accept NodePorts (node-1 and node-2 if not given; loopback too if
// it is among them, by the follower proxiers/localnodeport, which runs beside every backend), and
// "cidrs PREFIX..." the Service CIDRs.
//
// More sections "plan" and "flows" may follow; each plan is applied as a change of the one before.
// The names are those of the lab: pod-a, pod-b, pod-c on the node; far-a, far-b elsewhere; client-a,
// client-b outside; host, the node itself, with node-1, node-2, node-3 and loopback as addresses (and
// as an endpoint "host", a pod in the host's network); cluster-N in the Service CIDRs, external-N and
// lb-N. An endpoint listens on port 8080 or, as in far-a:9090, on 9090. In a pass line that
// names an address of the host, the host itself listens there and must be reached; any other address must
// turn out to be nobody's.
//
// What is written to the kernel is counted (nftables gives notice of it, and what programs of iptables-legacy
// are handed is recorded): a partial sync may write what changed, and little more.
//
// Beside the scenarios, random Services come and go by partial syncs, and after each sequence of changes the
// kernel's state is compared with that of a full sync on a host where nothing was before. Environment:
//
//	CONFORMANCE_SEQUENCES=5000  that many sequences, not a minute's worth
//	CONFORMANCE_PACE=3          a machine three times slower than usual
//
// FuzzPartial is the same with sequences that the fuzzer makes, for iptables.
package conformance
