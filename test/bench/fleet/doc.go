// Command fleet measures what many Edgeway hosts together do to one API server: how many requests and bytes they ask of
// it, and what that costs both sides, at rest, while endpoints change, and when the API server comes back after a
// while.
//
//	go run ./test/bench/fleet -hosts 200
//
// The hosts are one process in a network namespace of its own. Each is Edgeway's source of the Kubernetes API as the
// daemon has it, with its own connections, user agent, node name and service account; nothing is behind it. They watch all
// Services, then a tenth of them by a label, and then all with a priority level of their own (fleet-access.yaml). A user
// and a controller that are not of the fleet ask for a Service ten times a second, and wait for their turn. "Nobody" is the same run without hosts: what the API server does by itself. The API
// server is a real one, with its limits as they are by default.
//
// Requests are those in the API server's audit log, bytes those on the link between both namespaces. CPU is that of the
// process with all hosts, as its control group counts it, and of the API server.
//
// It needs root, a mounted cgroup2, and the programs that scripts/controlplane builds.
package main
