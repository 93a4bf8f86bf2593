// Package nfttable makes the nftables tables of a proxier agree with a plan. The proxier provides a Schema, which
// describes the contents of the tables as data, and the needs of each ServicePort and of the host.
//
// For each address family there is one table with the name in the Schema. A table holds fixed chains, fixed sets and
// maps, and objects: chains and maps that are created and deleted with ServicePorts. Several ServicePorts can need
// the same object or the same element, so the package counts references.
//
// # Transactions
//
// A transaction contains only changes. The nft program creates chains, rules, sets and maps. The package sends
// elements by netlink, on a socket that stays open, so most changes run no program. Nothing refers to an object
// before its elements exist, so elements may be sent in a separate transaction. nft writes elements only when tables
// are replaced as a whole, in one transaction.
//
// The kernel accepts a netlink batch only if the batch has the generation of the last transaction. If another
// transaction came first, the netlink notices show what that transaction changed. If that transaction did not touch
// the tables, the batch is sent again. Otherwise a full sync compares the tables with the plan.
//
// If the state of the kernel is unknown, for example after a start, the package reads its own tables by netlink. Then
// the package rewrites the rules and the elements that differ. Elements that packets added to maps are kept. Tend
// deletes unused objects with a delay: they may be needed again, and kernels before 6.2 refuse to delete a chain in
// the same transaction as the map element that led to the chain.
//
// # Numbers
//
// If a transaction adds a map element with a chain, the kernel (still in 6.18) visits all elements of all such maps.
// So large maps hold the number of a chain, and one small map, Schema.Numbers, maps this number to the chain.
package nfttable
