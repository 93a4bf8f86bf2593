package plan

import "testing"

// A name with a special meaning in nft or iptables must never appear in a rule.
func TestCheckInterface(t *testing.T) {
	for _, name := range []string{
		`eth0" drop`, "x -j DROP", "$ip", "", "*", "a*b", "name-of-17-letters", "a b", "a\nb",
		".", "..",
	} {
		if ValidateInterface(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	for _, name := range []string{"cni0", "veth*", "eth0.100", "br-0_a@b", "name-of-15-char"} {
		if err := ValidateInterface(name); err != nil {
			t.Error(err)
		}
	}
}
