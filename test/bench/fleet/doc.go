// Command fleet measures the load that many Edgeway hosts cause on one API server. The command counts the hosts'
// requests and the bytes that they receive, and measures the CPU time of the hosts and the API server. It does so while
// the hosts are idle, while endpoints change, and after the API server restarts.
//
//	go run ./test/bench/fleet -hosts 200
//
// All hosts run in a single process, which has its own network namespace. Each host runs only the daemon's source for
// the Kubernetes API, and has its own connections, user agent, node name and service account. In three runs, the hosts
// watch all Services, a tenth of the Services (with a label selector), and all Services with a separate priority level
// for the hosts (fleet-access.yaml). During each run, a user and a controller outside the fleet each list one Service
// ten times a second. The column "no hosts" contains the results from a run without hosts. The API server is real and
// has its default limits.
//
// The command counts the requests in the API server's audit log, and the bytes on the link between the network
// namespaces of the hosts and the API server. A control group measures the hosts' CPU time.
//
// The command requires root, a mounted cgroup2 file system, and the programs that scripts/controlplane builds.
package main
