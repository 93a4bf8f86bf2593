// Command bench measures Edgeway, and kube-proxy beside it, against a real API server: starts, changes, new
// connections and memory.
//
//	scripts/bench -mode iptables-legacy -sizes 1000,10000
//
// Both programs use the kernel in the same way: nftables (the default), iptables in one of its variants, or IPVS.
// With -previous an earlier edgeway takes kube-proxy's place. In mode nftables a bare program (package floor) makes
// the same changes: no program can take less.
//
// Only the ratio of two figures of one run says something about the programs, because a figure alone depends on the
// machine. Each program has a network namespace and a control group of its own. All programs watch the same API
// server and take turns; the others are frozen meanwhile. The bench measures from outside: a change has arrived when
// a connection reaches the new endpoint. CPU is the time of the program and of every process that it started.
//
// It needs root, cgroup2, and the programs that scripts/controlplane builds. Mode ipvs needs a kernel with IPVS and
// ipvsadm: TestNightlyIPVSBench of test/vm/jobs runs it in a virtual machine.
package main
