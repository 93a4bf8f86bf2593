package nft

import (
	"errors"
	"strings"
	"testing"
)

func TestRunRejectsUnsafeNames(t *testing.T) {
	for _, name := range []string{"a; list tables", "a\nlist tables", "{", ""} {
		if out, err := Run(t.Context(), 1000, "", "list", "table", "inet", name); err == nil ||
			!strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%q: %q, %v", name, out, err)
		}
	}
}

func TestRunBoundsOutput(t *testing.T) {
	if out, err := Run(t.Context(), 1<<16, "", "--help"); err != nil || !strings.Contains(string(out), "--json") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := Run(t.Context(), 100, "", "--help"); !errors.Is(err, ErrOutputTooLong) || len(out) != 100 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestRunErrorIsOneLine(t *testing.T) {
	_, err := Run(t.Context(), 1000, "nonsense\nnonsense\n", "-c", "-f", "-")
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("%v", err)
	}
}
