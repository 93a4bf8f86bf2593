// Package relay moves the bytes of TCP connections between clients on this host and endpoints, with
// half-closes and resets passed on.
package relay
