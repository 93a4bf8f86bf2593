// Package nfttable makes tables of nftables agree with a plan. A proxier brings a Schema: what the tables hold,
// as data, and what each ServicePort and the host need in them. The package does the rest.
//
// There is one table of the Schema's name for each address family. It holds fixed chains, fixed sets and maps, and
// objects: chains and maps that come and go with ServicePorts. Several ServicePorts can need one object, or one
// element: references are counted.
//
// # Transactions
//
// A transaction holds what changed, nothing else. The nft program creates chains, rules, sets and maps. Elements go by
// netlink, on a socket that stays open: for most changes no program runs. Nothing leads to an object before its
// elements are there, so those may come in a transaction of their own. nft writes elements only when it replaces tables
// as a whole, in one transaction.
//
// The kernel takes a batch by netlink only if its generation is that of the last transaction. If another transaction
// came before, the notices tell what it did. If it did not touch the tables, the batch is sent again. Otherwise a full
// sync compares the tables with the plan.
//
// When the kernel's state is unknown, as after a start, the package reads its own tables by netlink. Then it rewrites
// the rules and the elements that differ. What packets wrote into maps stays. Tend deletes objects that are no longer
// needed later: they may be needed again, and kernels before 6.2 refuse to delete a chain in the transaction that
// deletes the map element that led to it.
//
// # Numbers
//
// A transaction that adds a map element with a chain has the kernel (6.18 still) walk over all elements of all such
// maps. So large maps lead to the number of a chain, and one small map, Schema.Numbers, from there to the chain.
package nfttable
