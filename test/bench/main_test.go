package main

import "testing"

func TestParse(t *testing.T) {
	opts, err := parse([]string{"-sizes", "3,40"})
	if err != nil || len(opts.sizes) != 2 || opts.sizes[1] != 40 {
		t.Errorf("got %v, %v", opts.sizes, err)
	}
	for _, args := range [][]string{
		{"-sizes", "40,3"}, {"-sizes", "x"}, {"-sizes", "5,"}, {"-rounds", "0"}, {"-endpoints", "9"}, {"-wrong"}, {"-mode", "ebpf"}, {"-patience", "0s"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
