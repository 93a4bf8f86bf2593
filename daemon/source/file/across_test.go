package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// To guess what each of many slices was meant for would take minutes.
func TestGuessesAreBounded(t *testing.T) {
	var text strings.Builder
	const n = 300
	for i := range n {
		fmt.Fprintf(&text, "---\n%s---\n%s", called(fmt.Sprintf("service-%d", i)),
			strings.NewReplacer("name: web-1", fmt.Sprintf("name: slice-%d", i), "service-name: web", fmt.Sprintf("service-name: sarvice-%d", i)).Replace(slice))
	}
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	orphans, guesses := 0, 0
	for _, f := range Check(CheckOptions{Paths: []string{path}, Alone: true}).Faults {
		if strings.Contains(f.Message, "no manifest has Service default/sarvice-") {
			orphans++
		}
		if strings.HasPrefix(f.Fix, "did you mean Service default/service-") {
			guesses++
		}
	}
	if orphans != n || guesses != maxGuesses {
		t.Errorf("%d orphans, of which %d have a guess", orphans, guesses)
	}
}
