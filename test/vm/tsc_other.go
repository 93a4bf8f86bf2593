//go:build !amd64

package vm

// clockParameter returns "" if the emulator simulates its time stamp counter.
func clockParameter() string { return "" }
