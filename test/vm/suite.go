package vm

import (
	"fmt"
	"strings"
)

// Suite is the Debian suite that provides a VM's kernel and user space.
type Suite string

// The versions in the comments on these constants were current at the time of writing.
const (
	// Bullseye has Linux 5.10, nft 0.9.8, iptables 1.8.7 and systemd 247. Bullseye stands for hosts whose nft is too
	// old for the default backend, such as Ubuntu 22.04.
	Bullseye Suite = "bullseye"
	// Bookworm has Linux 6.1, nft 1.0.6 and systemd 252.
	Bookworm Suite = "bookworm"
	// Trixie has Linux 6.12, nft 1.1.3 and systemd 257.
	Trixie Suite = "trixie"
	// Newest is Debian testing, with Linux 7.2, nft 1.1.7 and systemd 262. Debian unstable seldom has newer versions
	// than Debian testing, and mmdebstrap often cannot install unstable.
	Newest Suite = "testing"
)

// Suites returns the suites that can run all backends, from the oldest to the newest. Bullseye runs only iptables.
func Suites() []Suite { return []Suite{Bookworm, Trixie, Newest} }

// ParseSuite parses a suite's name, or "newest".
func ParseSuite(name string) (Suite, error) {
	if name == "newest" {
		return Newest, nil
	}
	var names []string
	for _, s := range append([]Suite{Bullseye}, Suites()...) {
		if string(s) == name {
			return s, nil
		}
		names = append(names, string(s))
	}
	return "", fmt.Errorf("unknown suite %q: use one of newest, %s", name, strings.Join(names, ", "))
}
