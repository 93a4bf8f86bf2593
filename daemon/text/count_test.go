package text

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		0: "0 ports", 1: "1 port", 2: "2 ports", 999: "999 ports", 1203: "1,203 ports",
		1000000: "1,000,000 ports",
	} {
		if got := Count(n, "port"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestFirstOf(t *testing.T) {
	for want, list := range map[string][]int{
		"": nil, "1": {1}, "1, 2, 3": {1, 2, 3}, "1, 2, 3 and 2 more": {1, 2, 3, 4, 5},
	} {
		if got := FirstOf(list); got != want {
			t.Errorf("FirstOf(%v) = %q, want %q", list, got, want)
		}
	}
}
