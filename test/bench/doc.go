// Command bench measures Edgeway and kube-proxy against a real API server: starts, changes, new connections and
// memory.
//
//	scripts/bench -mode iptables-legacy -sizes 1000,10000
//
// Edgeway and kube-proxy use the same kernel mechanism: nftables (the default), a variant of iptables, or IPVS. With
// -previous, the bench measures an earlier Edgeway instead of kube-proxy. In mode nftables, package floor makes the
// same changes with as little work as possible. The figures of package floor are a lower bound.
//
// Compare only ratios of two figures of the same run, because a single figure depends on the machine. Each program has
// its own network namespace and control group. All programs watch the same API server and take turns. The bench freezes
// the programs that it does not measure. The bench measures from the outside: a change has taken effect when a
// connection reaches the new endpoint. CPU time includes every process that the program starts.
//
// The command requires root, cgroup2, and the programs that scripts/controlplane builds. Mode ipvs requires ipvsadm and
// a kernel with IPVS. TestNightlyIPVSBench in test/vm/jobs runs mode ipvs in a virtual machine.
package main
