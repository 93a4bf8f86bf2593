// Package ipvs holds tests of the daemon with the backend ipvs. They run in a virtual machine, as not every machine's
// kernel has IPVS: test/vm/jobs starts it, with this package's tests and the program edgeway as files.
package ipvs
