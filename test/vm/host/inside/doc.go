// Package inside contains the tests of package host that run in a virtual machine. The tests install, start, restart,
// break and remove the package as an operator does, and check the connections of clients.
//
// The tests are skipped outside a virtual machine, because they change the host on which they run.
package inside
