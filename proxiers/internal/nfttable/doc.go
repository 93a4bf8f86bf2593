// Package nfttable makes the nftables tables of a proxier agree with a plan. The proxier provides a Schema, which
// describes the contents of the tables and the needs of each ServicePort and of the host.
//
// Each address family has one table with the name in the Schema. A table contains fixed chains, fixed sets and maps,
// and objects. An object is a chain or a map that the package creates and deletes with ServicePorts. Several
// ServicePorts can need the same object or the same element, so the package counts references.
//
// # Transactions
//
// A transaction contains only changes. nft creates chains, rules, sets and maps. The package sends elements by netlink,
// on a socket that stays open, so that most changes run no program. Nothing refers to an object before its elements
// exist, so the package may send elements in a separate transaction. nft writes elements only when one transaction
// replaces a whole table.
//
// The kernel accepts a netlink batch only if the batch contains the generation number of the last transaction. If
// another program's transaction came first, the package reads from the netlink notices what the transaction changed. If
// the transaction did not change Edgeway's tables, the package sends the batch again. Otherwise, a full sync compares
// the tables with the plan.
//
// If the state of the kernel is unknown, for example after a restart, the package reads its own tables by netlink. Then
// the package rewrites all rules, and the elements that differ. The package keeps map elements that the packet path
// added. Maintain deletes unused objects with a delay, because ServicePorts may need the objects again, and because
// kernels before 6.2 cannot delete a chain in the same transaction as the map element that refers to the chain.
//
// # Numbers
//
// If a transaction adds a map element that refers to a chain, the kernel (6.18) visits all elements of all maps that
// contain chains. So large maps contain chain numbers, and one small map, Schema.Numbers, maps these numbers to chains.
package nfttable
