// Command loopback measures the relay of NodePorts on loopback beside the relays that one would use
// instead of it: HAProxy in TCP mode, systemd-socket-proxyd and socat. It measures throughput, new
// connections, the delay of a first byte, CPU time, and the memory of idle connections.
//
//	go run ./test/bench/loopback
//
// All of them run at the same time in one network namespace, relay from 127.0.0.1 to the same
// endpoint, and take turns of a second or so at each measure, so that what else the machine does hits
// them alike. The load and the endpoint are made to cost little: one thread each, bytes that arrive
// are dropped in the kernel. The column "direct" is the same load without a relay, which is the most
// that can be measured.
//
// It needs root, a mounted cgroup2, haproxy, socat, and systemd-socket-proxyd.
package main
