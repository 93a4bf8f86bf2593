// Package nfttable makes the nftables tables of a proxier agree with a plan. The proxier provides a Schema, which
// describes, as data, the contents of the tables and the needs of each ServicePort and of the host.
//
// Each address family has one table with the name in the Schema. A table holds fixed chains, fixed sets and maps, and
// objects: chains and maps that are created and deleted with ServicePorts. Several ServicePorts can need the same
// object or the same element, so the package counts references.
//
// # Transactions
//
// A transaction contains only changes. nft creates chains, rules, sets and maps. The package sends elements by
// netlink, on a socket that stays open, so most changes run no program. Nothing refers to an object before its
// elements exist, so elements may be sent in a separate transaction. nft writes elements only when tables are
// replaced as a whole, in one transaction.
//
// The kernel accepts a netlink batch only if the batch contains the generation number of the last transaction. If
// another transaction came first, the netlink notices show what that transaction changed. If that transaction did not
// touch the tables, the package sends the batch again. Otherwise a full sync compares the tables with the plan.
//
// If the state of the kernel is unknown, for example after a restart, the package reads its own tables by netlink.
// Then the package rewrites the rules and the elements that differ. Map elements that the packet path added are kept.
// Maintain deletes unused objects with a delay, because ServicePorts may need the objects again. Also, kernels before
// 6.2 cannot delete a chain in the same transaction as the map element that refers to the chain.
//
// # Numbers
//
// If a transaction adds a map element that refers to a chain, the kernel (still in 6.18) visits all elements of all
// maps with chains. So large maps hold chain numbers, and one small map, Schema.Numbers, maps the numbers to chains.
package nfttable
