// Package nfttable keeps a proxier's nftables tables in agreement with a plan. The proxier provides a Schema, which
// describes the tables and their contents for each ServicePort and for the host.
//
// Each address family has one table, whose name is in the Schema. A table contains fixed chains, fixed sets and maps,
// and objects. An object is a chain or a map that the package creates and deletes along with ServicePorts. Several
// ServicePorts can need the same object or the same element, so the package counts references to objects and elements.
//
// # Transactions
//
// A transaction normally contains only changes, not whole tables. The nft program creates chains, rules, sets and maps.
// The package itself sends elements through a netlink socket that stays open, so most changes do not run nft. The
// package can send elements in a separate transaction, because no rule or element refers to an object before the
// object's elements exist. The nft program writes elements only when one transaction replaces a whole table.
//
// The kernel accepts the package's netlink batch only if the batch contains the generation number of the last
// transaction. If another program's transaction came first, netlink notifications show what that transaction changed.
// If Edgeway's tables are unchanged, the package sends the batch again. Otherwise, a full sync compares Edgeway's
// tables with the plan.
//
// If the kernel's state is unknown, for example after a restart, the package reads its own tables through netlink, and
// then rewrites all rules and the elements that differ. The package keeps map elements that rules in the packet path
// have added. Maintain deletes an unused object after a delay, because a ServicePort may need it again. Furthermore,
// kernels before 6.2 cannot delete a chain in the same transaction as the map element that refers to it.
//
// # Numbers
//
// If a transaction adds a map element that refers to a chain, the kernel (6.18) visits all elements of all maps that
// contain chains. Large maps therefore contain chain numbers, and one small map, Schema.Numbers, maps the numbers to
// chains.
package nfttable
