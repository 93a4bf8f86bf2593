package kubeproxy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/config/kubeproxy"
)

// FuzzConvert: whatever is made of a configuration is one of ours. A value that ours does not take is named with its key.
func FuzzConvert(f *testing.F) {
	for path, value := range kubeproxy.Samples() {
		f.Add([]byte(head + nest(path, value)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		toml, notes, err := kubeproxy.Convert(text, daemon.Choices())
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "edgeway.toml")
		if err := os.WriteFile(path, []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = config.Load(path, daemon.Choices())
		if fault, ok := errors.AsType[*config.Error](err); err != nil && (!ok || fault.Key == "") {
			t.Errorf("%v:\n%s", err, toml)
		}
		for _, n := range notes {
			if setting, _, ok := strings.Cut(n, ": "); !ok || setting == "" {
				t.Errorf("the note %q is about no setting", n)
			}
		}
	})
}
