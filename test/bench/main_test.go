package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A small run measures everything that there is to measure of Edgeway, and prints and saves it.
func TestRun(t *testing.T) {
	opts, err := parse([]string{
		"-sizes", "20", "-rounds", "1", "-changes", "1", "-burst", "5", "-endpoints", "3",
		"-json", filepath.Join(t.TempDir(), "bench.json"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runBench(t.Context(), opts, &out); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(opts.json)
	if err != nil {
		t.Fatal(err)
	}
	var entries []struct {
		figure
		Median float64
	}
	if err := json.Unmarshal(raw, &entries); err != nil {
		t.Fatal(err)
	}
	got := map[figure]float64{}
	for _, e := range entries {
		got[e.figure] = e.Median
	}
	for _, m := range measures() {
		value, ok := got[figure{m, 20, oursName}]
		// So few elements may fit into memory that the kernel had charged to the group already.
		if !ok || value <= 0 && m != kernelMemory {
			t.Errorf("%s: %v, measured %v", m, value, ok)
		}
	}
	if got[figure{resident, fewServices, oursName}] <= 0 {
		t.Errorf("no resident memory with %d Services", fewServices)
	}
	if !strings.Contains(out.String(), "| first sync, ms |") {
		t.Errorf("no table:\n%s", &out)
	}
}

func TestParse(t *testing.T) {
	opts, err := parse([]string{"-sizes", "3,40"})
	if err != nil || len(opts.sizes) != 2 || opts.sizes[1] != 40 {
		t.Errorf("got %v, %v", opts.sizes, err)
	}
	for _, args := range [][]string{
		{"-sizes", "40,3"}, {"-sizes", "x"}, {"-sizes", ""}, {"-rounds", "0"}, {"-endpoints", "9"}, {"-wrong"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
