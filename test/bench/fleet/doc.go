// Command fleet measures the load of many Edgeway hosts on one API server. The command counts the hosts' requests and
// bytes, and measures their cost for both sides: at rest, while endpoints change, and after a restart of the API
// server.
//
//	go run ./test/bench/fleet -hosts 200
//
// All hosts run in one process in its own network namespace. Each host is the daemon's source for the Kubernetes API
// without the rest of the daemon, with its own connections, user agent, node name and service account. The hosts watch
// all Services, then one tenth of the Services, which a label selects, and then all Services with a priority level for
// the hosts (fleet-access.yaml). During each run, a user and a controller outside the fleet each list a Service ten
// times a second. The column "nobody" shows the same run without hosts. The API server is real and has its default
// limits.
//
// Requests are counted in the API server's audit log, and bytes on the link between the two namespaces. CPU time is
// measured for the process with all hosts, by its control group, and for the API server.
//
// The command needs root, a mounted cgroup2, and the programs that scripts/controlplane builds.
package main
