package config

import (
	"errors"
	"strings"
	"testing"
)

// FuzzLoad verifies that load never panics. If a configuration loads, loading Dump's output must return the same
// configuration. If a configuration does not load, each error must begin with the path of a configuration file.
func FuzzLoad(f *testing.F) {
	f.Add("version = 1\nsource.file.paths=['m']", "")
	f.Add("version = 1\n[source.kube]\nkubeconfig='/k'\n[proxy]\nnodeport_addresses=['primary','::/0']",
		"[proxy]\nmasquerade_bit=3")
	f.Add("version = 1\n[[proxy]]\n[proxy.x]\na={b={}}", "[nope]\n\"\" = 1979-05-27")
	f.Add("version = 1\nsource.file.paths=['m']\nproxy.min_sync_period='1s'", "[proxy]\nfull_sync_period=1")
	f.Add(CommentedDefault(choices), Dump(Default()))
	f.Fuzz(func(t *testing.T, main, dropIn string) {
		c, err := load([]file{{"/e.toml", []byte(main)}, {"/conf.d/a.toml", []byte(dropIn)}}, "host", choices)
		if err != nil {
			verifyFaults(t, err)
			return
		}
		again, err := load([]file{{"/e.toml", []byte(Dump(c))}}, "host", choices)
		if err != nil {
			t.Fatalf("what Dump wrote does not load: %v\n%s", err, Dump(c))
		}
		if Dump(again) != Dump(c) {
			t.Fatalf("Dump and load changed the configuration:\n%s\n%s", Dump(c), Dump(again))
		}
	})
}

func verifyFaults(t *testing.T, err error) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is no joined error", err)
	}
	for _, e := range joined.Unwrap() {
		at, ok := errors.AsType[*Error](e)
		if !ok || !strings.HasPrefix(at.Error(), at.File) || at.File == "" {
			t.Fatalf("fault without a file: %v", e)
		}
	}
}
