package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "draw the picture anew")

func TestPictureIsUpToDate(t *testing.T) {
	const path = "../../packaging/doc/data-path.svg"
	if *update {
		if err := os.WriteFile(path, []byte(draw()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(draw(), string(got)); diff != "" {
		t.Errorf("%s differs (go test -update draws it anew):\n%s", path, diff)
	}
}

func TestPackagesInThePictureExist(t *testing.T) {
	packages := 0
	for _, x := range boxes {
		if !strings.Contains(x.name, "/") {
			continue
		}
		packages++
		files, err := filepath.Glob(filepath.Join("../..", x.name, "*.go"))
		isTest := func(name string) bool { return strings.HasSuffix(name, "_test.go") }
		if files = slices.DeleteFunc(files, isTest); err != nil || len(files) == 0 {
			t.Errorf("there is no package %s", x.name)
		}
	}
	if packages == 0 {
		t.Error("the picture shows no package")
	}
}

// In DejaVu Sans, one of the widest fonts that browsers use, the average width of a character is less than 0.6 times
// the font size.
func TestTextFitsIntoItsBox(t *testing.T) {
	for _, x := range boxes {
		name, note := len(x.name)*13*6/10, len(x.note)*11*6/10
		if name > x.w-4 || note > x.w-4 {
			t.Errorf("%s: the box has %d pixels, the name %d, the note %d", x.name, x.w, name, note)
		}
	}
}

func TestArrowsCrossNoBox(t *testing.T) {
	for _, a := range arrows {
		x1, y1, x2, y2 := a.ends()
		if x1 != x2 && y1 != y2 {
			t.Errorf("%s and %s do not face each other", a.from, a.to)
		}
		for _, x := range boxes {
			inside := max(x1, x2) > x.x && min(x1, x2) < x.x+x.w && max(y1, y2) > x.y && min(y1, y2) < x.y+x.h
			if inside {
				t.Errorf("the arrow from %s to %s crosses %s", a.from, a.to, x.name)
			}
		}
	}
}
