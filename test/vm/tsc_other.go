//go:build !amd64

package vm

// clockParameter returns "", because QEMU simulates the time stamp counter on this architecture.
func clockParameter() string { return "" }
