// Command fleet measures the load that many Edgeway hosts cause on one API server. While the hosts are idle, while
// endpoints change, and after the API server restarts, the command counts the hosts' requests and the bytes that the
// hosts receive, and measures the CPU time of the hosts and of the API server.
//
//	go run ./test/bench/fleet -hosts 200
//
// All hosts run in a single process, which has its own network namespace. Each host runs only the daemon's source for
// the Kubernetes API, and has its own connections, user agent, node name and service account. The hosts watch all
// Services in the first run, a tenth of the Services (with a label selector) in the second run, and all Services with a
// separate priority level for the hosts (fleet-access.yaml) in the third run. During each run, a user and a controller
// that do not belong to the fleet each list one Service ten times a second. The column "no hosts" contains the results
// from a run without hosts. The API server is a real kube-apiserver with its default limits.
//
// The command counts requests in the API server's audit log, and bytes on the link between the hosts' network namespace
// and the API server's. The command reads the hosts' CPU time from a control group.
//
// The command requires root, a mounted cgroup2 file system, chrt, and the programs that scripts/controlplane builds.
package main
