// Package nftables programs Services with nftables alone: a table "edgeway" in each of the families ip and ip6, as package
// dispatch describes it, in which a rule picks the endpoint of a connection.
package nftables
