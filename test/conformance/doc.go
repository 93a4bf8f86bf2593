// Package conformance is the test suite that every backend must pass. The suite uses the backend to apply plans in a
// lab of network namespaces, opens real connections, and compares their results with the decisions of plan.Decide.
//
// A backend's test only needs to call Run. The scenarios are the files testdata/*.txtar. To add a scenario, add a file
// in this format:
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
// The suite compares every line of a "flows" section first with plan.Decide and then with the results of real
// connections, over each protocol and family. The left side of a line consists of a source and a destination. The right
// side either lists exactly the endpoints that connections must reach, or is one of the words "reject", "drop" and
// "pass". The word "pass" means that the backend does not change the packet. An endpoint with +snat must see an address
// of the node as its peer. An endpoint without +snat must see the address of the source as its peer. The source
// "host@lb-1" is the host with the source address lb-1, which the suite adds to lo for the test. The source "host@" is
// a socket of the host that is not bound to an address.
//
// A "service" line starts the description of a Service. By default, the Service's ports use TCP, UDP and SCTP over both
// IPv4 and IPv6. A line such as "for TCP IPv4" selects protocols and families. In a "flows" section, a "for" line
// applies to the lines that follow. A Service can have the lines "for", "affinity DURATION", "cluster ENDPOINT..." and
// "local ENDPOINT...", and a line for each frontend. A frontend's line consists of a kind, an address and a port, an
// optional "from SOURCE..." (names, prefixes or "nowhere") for loadBalancerSourceRanges, and a route for each origin. A
// route has the form origin=pool[+snat], origin=reject or origin=drop. The word "all" stands for the three origins pod,
// host and outside. Lines about the node come before the first "service" line. The line "pods source" (the default),
// "pods interface" or "pods unknown" selects how the plan identifies pods. The line "nodeports ADDRESS..." selects the
// addresses that serve NodePorts (by default, node-1 and node-2). The addresses for NodePorts may include loopback,
// where the follower proxiers/localnodeport serves NodePorts for every backend. The line "cidrs PREFIX..." sets the
// Service CIDRs.
//
// More "plan" and "flows" sections may follow. The suite applies each plan as a change from the previous plan. The lab
// has these names: pod-a, pod-b and pod-c on the node, far-a and far-b on other nodes, client-a and client-b outside
// the cluster, cluster-N in the Service CIDRs, and external-N and lb-N in other ranges. The node itself is called
// "host" and has the addresses node-1, node-2, node-3 and loopback. As an endpoint, "host" is a pod that uses the host
// network. An endpoint has port 8080 unless its name contains another port, as in far-a:9090. If a "pass" line names an
// address of the node, the node listens at this address, and connections must reach the node. If a "pass" line names
// any other address, no host may have that address.
//
// The suite counts the objects that a partial sync writes to the kernel, based on the nftables notifications and on the
// input of the iptables-legacy programs. A partial sync may write only a few objects besides the changed objects.
//
// In addition to running the scenarios, the suite adds, changes and removes random Services in partial syncs. After
// each sequence of changes, the suite compares the kernel's state with the state after a full sync on a clean host. The
// suite reads these environment variables:
//
//	CONFORMANCE_SEQUENCES=5000  the number of sequences, instead of the backend's default
//	CONFORMANCE_CONNECTIONS=100000  the number of connections to count, instead of 500
//	CONFORMANCE_PACE=3          a machine that is three times slower than usual
//
// FuzzPartial tests the iptables backend in the same way, with sequences that the fuzzer generates.
package conformance
