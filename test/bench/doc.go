// Command bench measures the speed and the scale of Edgeway, and of kube-proxy beside it, against
// a real API server: first sync, restart, one change, a new Service, a burst of changes, memory,
// connections, and a start without the API server.
//
//	go run ./test/bench -kube-proxy "$(scripts/controlplane kube-proxy)/kube-proxy" -mode iptables-legacy
//
// Both use the kernel in the same way: nftables, which is the default, or iptables in one of its two
// variants, or IPVS, where less is measured. With -previous an earlier edgeway takes kube-proxy's place, and no figure may be worse
// than its by more than a twentieth. With -manifests Edgeway reads files, and is measured alone.
//
// In nftables mode a bare program (package floor) is measured as well, at changes and new Services: the least that can be.
//
// What counts is the ratio of two figures of one run: a figure alone tells about the machine. Each
// program has a network namespace of its own, and both watch the same API server; while one is
// measured the other is frozen, and they take turns. Times are taken from outside: a change has
// arrived when a connection reaches the new endpoint. CPU is that of the program and of every
// process that it started, as its control group counts it.
//
// It needs root, a mounted cgroup2, the programs that scripts/controlplane builds, and those of iptables where
// these are measured; for IPVS a kernel that has it, ipvsadm and ipset: test/vm/jobs runs that in a machine.
package main
