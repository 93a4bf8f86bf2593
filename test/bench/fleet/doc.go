// Command fleet measures what many Edgeway hosts together do to one API server: how many requests and bytes they ask of
// it, and what that costs both sides, at rest, while endpoints change, and when the API server comes back after a
// while.
//
//	go run ./test/bench/fleet -hosts 200
//
// The hosts are one process in a network namespace of its own. Each is Edgeway's source of the Kubernetes API as the
// daemon has it, with its own connections, user agent, node name and service account; nothing is behind it. They watch
// all Services, then a tenth of them by a label, and then all with a priority level of their own (fleet-access.yaml).
// Meanwhile a user and a controller that do not belong to the fleet each list a Service ten times a second. "Nobody" is
// the same run without hosts. The API server is a real one with its default limits.
//
// Requests are those in the API server's audit log, bytes those on the link between both namespaces. CPU is that of the
// process with all hosts, as its control group counts it, and of the API server.
//
// It needs root, a mounted cgroup2, and the programs that scripts/controlplane builds.
package main
