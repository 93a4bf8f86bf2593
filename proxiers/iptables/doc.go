// Package iptables is the backend for iptables, in either of its implementations: iptables-nft and
// iptables-legacy. Its chains have the names that kube-proxy's have (KEP-3453), so that people and
// tools know what they see.
//
// Each family has the tables nat, which chooses the endpoint, and filter, which refuses what nat left
// alone. In both, KUBE-SERVICES and KUBE-NODEPORTS lead to the chains of ServicePorts; when they have many
// rules they are trees (see dispatch.go), so that neither a packet nor a change walks all of them.
//
// The chains of a ServicePort, by the hash of its name:
//
//	KUBE-SVC-…  one of the cluster pool's endpoints, by chance or by session affinity
//	KUBE-SVL-…  the same of the local pool
//	KUBE-EXT-…  tells pods, the host and others apart, and masquerades
//	KUBE-FW-…   loadBalancerSourceRanges
//	KUBE-SEP-…  one endpoint, where its rule needs company: hairpin or session affinity. Else the DNAT
//	            rule is in KUBE-SVC-… itself: with a chain for each endpoint iptables-nft 1.8.9 takes ten
//	            times as long to write 5,000 Services of 5 endpoints, and iptables-legacy's table has
//	            three times as many entries, all of which every change copies.
package iptables
