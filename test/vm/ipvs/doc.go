// Package ipvs contains the tests of the daemon with the ipvs backend. The tests run in a virtual machine, because not
// every kernel has IPVS. test/vm/jobs starts the machine with the tests and the edgeway program.
package ipvs
