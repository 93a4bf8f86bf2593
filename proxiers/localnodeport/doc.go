// Package localnodeport serves TCP NodePorts on the loopback addresses of the host, 127.0.0.1 and ::1
// (KEP-6032), where the backends cannot: a packet to 127.0.0.0/8 may not leave the host. It
// listens on each of them and relays in user space to the endpoints of the plan.
//
// The folder relay below moves the bytes; this package decides who listens and which endpoint is next.
package localnodeport
