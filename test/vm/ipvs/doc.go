// Package ipvs contains the tests of the daemon with the backend ipvs. The tests run in a virtual machine, because
// not every kernel has IPVS. test/vm/jobs starts the machine with these tests and the program edgeway.
package ipvs
