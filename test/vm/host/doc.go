// Package host tests Edgeway's Debian package on hosts with systemd. The tests build the .deb, start virtual machines
// (package vm) that contain the .deb, and run the tests of package inside in these virtual machines.
package host
