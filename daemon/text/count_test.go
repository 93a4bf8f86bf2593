package text

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 ports", 1: "1 port", 2: "2 ports", 999: "999 ports", 1203: "1,203 ports", 1000000: "1,000,000 ports"} {
		if got := Count(n, "port"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
