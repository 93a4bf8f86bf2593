package plantest

import (
	"os"
	"path/filepath"
	"testing"
)

// CompareGolden compares got with testdata/NAME.golden, or writes got to that file if update is true.
func CompareGolden(t *testing.T, update bool, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run the test with -update to accept the change):\n%s", path, got)
	}
}
