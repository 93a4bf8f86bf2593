package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEachCommandGetsItsManual(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	folder := t.TempDir()
	if code, _, stderr := run(t, "man", folder); code != exitOK || stderr != "" {
		t.Fatalf("exit %d, err %q", code, stderr)
	}
	root, _ := rootCommand(io.Discard)
	for _, cmd := range root.Commands() {
		page, err := os.ReadFile(filepath.Join(folder, "edgeway-"+cmd.Name()+".8"))
		if cmd.Hidden {
			if err == nil {
				t.Errorf("the hidden command %s has a manual", cmd.Name())
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".Dd November 14, 2023\n", ".Cm " + cmd.Name(), ".It Fl Fl config Ar file\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: the manual has no %q", cmd.Name(), want)
			}
		}
	}
}

func TestManualEscapesWhatRoffTakesForItsOwn(t *testing.T) {
	for in, want := range map[string]string{
		".toml is\n'quoted' \\ a-b": "\\&.toml is\n\\&'quoted' \\e a\\-b",
		"One. Two: three.\nFour":    "One.\nTwo: three.\nFour",
	} {
		if got := paragraphs(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got, want := onMacroLine("what It is, No more"), `what \&It is, \&No more`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Op takes the rest of its line (mdoc(7)): before other arguments, a flag that may be left out stands between Oo and Oc.
func TestOptionsOfTheManualDoNotEncloseWhatFollows(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/edgeway.8")
	if err != nil {
		t.Fatal(err)
	}
	if bad := regexp.MustCompile(`.*\bOp Fl Fl \S+ (Ar|Op|Oo|Cm)\b.*`).FindAllString(string(page), -1); bad != nil {
		t.Errorf("%q", bad)
	}
}
