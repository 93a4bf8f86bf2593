package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon"
	"edgeway/daemon/config"
)

var update = flag.Bool("update", false, "write etc/edgeway/edgeway.toml and the key list of packaging/man/edgeway.toml.5")

const root = "../.."

func TestShippedFileEqualsCommentedDefault(t *testing.T) {
	compareFile(t, filepath.Join(root, "etc/edgeway/edgeway.toml"), config.CommentedDefault(daemon.Backends()))
}

func TestManualListsEveryKey(t *testing.T) {
	name := filepath.Join(root, "packaging/man/edgeway.toml.5")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = ".\\\" Keys: written by go test ./daemon/config -update\n", ".\\\" End of keys\n"
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks around the keys", name)
	}
	compareFile(t, name, head+begin+config.Manual(daemon.Backends())+end+tail)
}

func compareFile(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; run go test ./daemon/config -update (-want +got):\n%s", name, diff)
	}
}
