//go:build !amd64

package vm

// clockParameter is empty where the emulator makes up its time stamp counter.
func clockParameter() string { return "" }
