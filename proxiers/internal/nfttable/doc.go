// Package nfttable keeps tables of nftables as a plan asks for. A proxier brings a Schema: what the tables hold,
// as data, and what each ServicePort and the host need in them. The package does the rest.
//
// There is one table of the Schema's name for each address family. It holds fixed chains, fixed sets and maps, and
// objects: chains and maps that come and go with ServicePorts. Several ServicePorts can need one object, or one
// element: references are counted.
//
// # Transactions
//
// A change is what changed, nothing else. Chains, rules, sets and maps are made by the nft program, and elements by
// netlink, on a socket that stays open: for most changes no program runs. Nothing leads to an object before its elements
// are there, so those may come in a transaction of their own. With Env.ProgramsOnly, where the kernel
// does not take what netlink sends, and where a change has parts that belong together, elements are nft's too.
//
// A batch by netlink comes after the transaction that was last heard of, or not at all. If another one came before, the
// notices tell what it did: nothing of ours, and the batch is sent again, or else the table is compared as a whole.
//
// When the kernel's state is unknown, as after a start, the package reads its own tables by netlink. Then rules are
// rewritten and elements compared, in one transaction again, and what packets wrote into maps stays. Objects that are no longer needed are deleted later, by Tend: they may be needed again,
// and kernels before 6.2 refuse to delete a chain in the transaction that deletes the map element that led to it.
//
// # Numbers
//
// A transaction that adds a map element with a chain has the kernel (6.18 still) walk over all elements of all such
// maps. So large maps lead to the number of a chain, and one small map, Schema.Numbers, from there to the chain.
package nfttable
