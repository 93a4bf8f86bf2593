// Package host tests Edgeway's Debian package on hosts with systemd. The tests build the .deb and start virtual
// machines (package vm) that contain it. The virtual machines run the tests of package inside.
package host
