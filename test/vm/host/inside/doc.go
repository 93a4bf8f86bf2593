// Package inside contains the tests of package host that run in a virtual machine. The tests install, start, restart,
// break and remove the package as an operator does, and check the connections of clients.
//
// Outside of a virtual machine, the tests do nothing, because they change the host on which they run.
package inside
