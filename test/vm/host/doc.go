// Package host tests the package on a host with systemd: its tests build the .deb, start virtual
// machines (package vm) that have it, and run the tests of package inside there.
package host
