package main

import (
	"os"
	"regexp"
	"testing"
)

// Op takes the rest of its line (mdoc(7)): before other arguments, a flag that may be left out stands between Oo and
// Oc.
func TestOptionsOfTheManualDoNotEncloseWhatFollows(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/edgeway.8")
	if err != nil {
		t.Fatal(err)
	}
	if bad := regexp.MustCompile(`.*\bOp Fl Fl \S+ (Ar|Op|Oo|Cm)\b.*`).FindAllString(string(page), -1); bad != nil {
		t.Errorf("%q", bad)
	}
}
