package main

import (
	"os"
	"testing"
)

// The tests' binary is the endpoint too, as the program is.
func TestMain(m *testing.M) {
	maybeServe()
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	opts, err := parse([]string{"-rounds", "3", "-idle", "50"})
	if err != nil || opts.rounds != 3 || opts.idle != 50 || opts.connections == 0 {
		t.Errorf("got %+v, %v", opts, err)
	}
	for _, args := range [][]string{{"-rounds", "0"}, {"-idle", "-1"}, {"-window", "0s"}, {"-wrong"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
