package plan

import (
	"fmt"
	"strings"
)

// maxInterface is the maximum length of an interface name, in bytes: the kernel's IFNAMSIZ without the terminating null
// byte.
const maxInterface = 15

// ValidateInterface returns an error if a pattern in Node.PodInterfaces is unsuitable for a rule. A valid pattern has
// at most 15 bytes and is an interface name or a name prefix followed by '*'. The kernel must accept the name
// (dev_valid_name, up to Linux 6.18). No character in the name may have a special meaning in rules.
func ValidateInterface(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	if name == "" || name == "." || name == ".." || len(pattern) > maxInterface ||
		strings.ContainsFunc(name, badInterfaceRune) {
		return fmt.Errorf("interface %q is invalid: use a name, or a prefix followed by '*', with at most %d characters (a-z, A-Z, 0-9, '.', '_', '-', '@')",
			pattern, maxInterface)
	}
	return nil
}

func badInterfaceRune(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("._-@", r):
		return false
	}
	return true
}

// MatchInterface reports whether a valid pattern matches an interface name.
func MatchInterface(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
