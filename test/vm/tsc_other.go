//go:build !amd64

package vm

// clockParameter returns "", because the emulator simulates the time stamp counter here.
func clockParameter() string { return "" }
