package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestBillOfMaterialsListsLinkedModules(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "edgeway"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.2.3+incompatible", Sum: "h1:a"},
			{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v1.0.1"}},
		},
	}
	got := billOfMaterials(info, "1.0.0+2.gabc", time.Unix(0, 0).UTC())
	if m := got.Metadata; m.Timestamp != "1970-01-01T00:00:00Z" ||
		m.Component.PURL != "pkg:golang/edgeway@1.0.0%2B2.gabc" {
		t.Errorf("metadata: %+v", m)
	}
	var purls []string
	for _, c := range got.Components {
		purls = append(purls, c.PURL)
	}
	want := "pkg:golang/std@1.26.8 pkg:golang/example.org/a@v1.2.3%2Bincompatible pkg:golang/example.org/fork@v1.0.1"
	if strings.Join(purls, " ") != want {
		t.Errorf("got %q, want %s", purls, want)
	}
}

func TestModuleWithoutLicenseIsAnError(t *testing.T) {
	folder := t.TempDir()
	var out strings.Builder
	for _, step := range []struct {
		file string
		ok   bool
	}{{"README", false}, {"LICENSE.md", true}} {
		if err := os.WriteFile(filepath.Join(folder, step.file), []byte("text of "+step.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := notice(&out, "a v1", folder); (err == nil) != step.ok {
			t.Errorf("with %s: %v", step.file, err)
		}
	}
	if want := "==== a v1: LICENSE.md\n\ntext of LICENSE.md\n\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
