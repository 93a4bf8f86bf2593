// Package inside has the tests of package host that run in a virtual machine: they install, start,
// restart, break and remove the package as an operator does, and look at what connections see.
//
// Outside of such a machine they do nothing, as they change the host that they run on.
package inside
