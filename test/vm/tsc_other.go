//go:build !amd64

package vm

// clockParameter returns "", because the emulator simulates the time stamp counter on this architecture.
func clockParameter() string { return "" }
