// Package localnodeport serves TCP NodePorts on the loopback addresses of the host, 127.0.0.1 and ::1 (KEP-6032). The
// kernel rules of the backends do not cover loopback addresses, because a packet to 127.0.0.0/8 must not leave the
// host. The package listens on each loopback address and relays connections in user space to the endpoints of the plan.
//
// Package localnodeport chooses the ports to listen on and the endpoints. Subpackage relay copies the bytes.
package localnodeport
