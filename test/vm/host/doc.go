// Package host tests Edgeway's Debian package on hosts with systemd. The tests build the .deb and start virtual
// machines (package vm) that contain it. The tests in package inside run in these virtual machines.
package host
