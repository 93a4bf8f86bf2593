package nfttable

import (
	"errors"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

func TestPrefixBits(t *testing.T) {
	for _, c := range []struct {
		first, last []byte
		bits        int
		ok          bool
	}{
		{[]byte{10, 0, 0, 0}, []byte{10, 255, 255, 255}, 8, true},
		{[]byte{0, 0, 0, 0}, []byte{255, 255, 255, 255}, 0, true},
		{[]byte{10, 1, 2, 3}, []byte{10, 1, 2, 3}, 32, true},
		{[]byte{10, 1, 2, 3}, nil, 32, true},
		{[]byte{10, 0, 0, 128}, []byte{10, 0, 0, 255}, 25, true},
		{[]byte{10, 0, 0, 3}, []byte{10, 0, 0, 9}, 0, false},
		{[]byte{10, 0, 0, 0}, []byte{10, 0, 0, 254}, 0, false},
	} {
		if bits, ok := prefixBits(c.first, c.last); ok != c.ok || ok && bits != c.bits {
			t.Errorf("%v to %v: %d, %v; want %d, %v", c.first, c.last, bits, ok, c.bits, c.ok)
		}
	}
}

// FuzzDecode decodes elements that consist of random bytes. decode must return an error for unreadable elements.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{10, 96, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0}, []byte{}, []byte{8, 0, 1, 0, 1, 2, 3, 4})
	f.Add([]byte{10, 96, 0, 1}, []byte{10, 96, 0, 255}, []byte{})
	f.Fuzz(func(t *testing.T, key, keyEnd, data []byte) {
		for i, set := range testSchema().Sets {
			for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
				e, err := set.decode(family, SetID(i), rawElement{key: key, keyEnd: keyEnd, data: data, user: data},
					map[string]string{})
				if err != nil && !errors.Is(err, errUnreadable) {
					t.Errorf("%s: error %v, want errUnreadable", set.Name, err)
				}
				if err == nil && (e.Family != family || e.Set != SetID(i)) {
					t.Errorf("%s: entry %+v, want one of %v", set.Name, e, family)
				}
			}
		}
	})
}

func FuzzParseElement(f *testing.F) {
	f.Add([]byte{16, 0, 1, 128, 12, 0, 1, 0, 10, 96, 0, 1, 6, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e := parseRaw(b); len(e.key) > len(b) || len(e.keyEnd) > len(b) || len(e.data) > len(b) {
			t.Errorf("%+v in %d bytes", e, len(b))
		}
	})
}

// FuzzExcerpt passes random nft messages to excerpt. The result must be a single short line.
func FuzzExcerpt(f *testing.F) {
	f.Add("/dev/stdin:1:1-10: Error: Could not process rule: No such file or directory\nadd rule ip x y\n^^^^\n")
	f.Add("Error: \n")
	f.Add("\n\n\x1b[2J\r" + strings.Repeat("x", 1000))
	f.Fuzz(func(t *testing.T, text string) {
		got := excerpt(text)
		kept := strings.TrimSuffix(strings.TrimPrefix(got, "nft: "), "…")
		if len(kept) > maxMessage || strings.Contains(kept, "\n") || !strings.Contains(text, kept) {
			t.Errorf("%q of %q", got, text)
		}
	})
}
