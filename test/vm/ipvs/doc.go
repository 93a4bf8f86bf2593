// Package ipvs tests the daemon with the ipvs backend. The tests run in a virtual machine, because not every kernel has
// IPVS. Package test/vm/jobs starts a virtual machine that contains the tests and the edgeway program.
package ipvs
