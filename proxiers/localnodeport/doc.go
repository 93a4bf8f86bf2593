// Package localnodeport serves TCP NodePorts on the host's loopback addresses, 127.0.0.1 and ::1 (KEP-6032). The
// backends' kernel rules do not cover loopback addresses, because a packet to 127.0.0.0/8 must not leave the host. The
// package listens on each loopback address, and relays connections to the plan's endpoints in user space.
//
// Package localnodeport chooses the listening ports and the endpoints. The subpackage relay copies the data of each
// connection.
package localnodeport
