package plan

import (
	"fmt"
	"strings"
)

// maxInterface is the kernel's IFNAMSIZ less the zero at the end.
const maxInterface = 15

// CheckInterface refuses a pattern for Node.PodInterfaces that cannot be written in a rule: a name of at most 15
// bytes, or a prefix of names with a '*' behind it. It is what the kernel takes (dev_valid_name, up to Linux 6.18)
// without the characters that have a meaning in rules.
func CheckInterface(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	if name == "" || name == "." || name == ".." || len(pattern) > maxInterface ||
		strings.ContainsFunc(name, badInterfaceRune) {
		return fmt.Errorf("interface %q is invalid: use a name of at most %d of a-z, A-Z, 0-9, '.', '_', '-' and '@', or the beginning of one and a '*', together as long",
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

// MatchInterface says that a pattern of CheckInterface stands for the interface of this name.
func MatchInterface(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
