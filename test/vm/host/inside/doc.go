// Package inside contains the tests of package host that run in a virtual machine. The tests install, start, restart,
// break and remove the package as an operator does, and verify client connections.
//
// TestMain runs the tests only in a virtual machine, because they change the host that they run on.
package inside
