// Command bench measures how fast Edgeway and kube-proxy start, apply changes and forward new connections, and how much
// memory they use. Both programs use a real API server.
//
//	scripts/bench -mode iptables-legacy -sizes 1000,10000
//
// Edgeway and kube-proxy use the same kernel mechanism: nftables (the default), a variant of iptables, or IPVS. With
// -previous, the benchmark measures an earlier version of Edgeway instead of kube-proxy. In nftables mode, the
// benchmark also measures package floor, which applies the same changes with as little work as possible. The results of
// package floor are a lower bound.
//
// A single result depends on the machine, so compare only ratios of two results from the same run. Each program has its
// own network namespace and control group. All programs watch the same API server and take turns. While the benchmark
// measures one program, it freezes the others. A change counts as complete when a connection reaches the new endpoint.
// CPU time includes every process that the measured program starts.
//
// The command requires root, cgroup2, and the programs that scripts/controlplane builds. The ipvs mode requires ipvsadm
// and a kernel with IPVS. TestNightlyIPVSBench in test/vm/jobs runs the ipvs mode in a virtual machine.
package main
