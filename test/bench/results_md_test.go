package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edgeway/test/bench/kit"
)

var update = flag.Bool("update", false, "draw results/*.svg anew")

// publishedRun is a run whose results are in RESULTS.md. file is the base name of the run's files in the results
// directory, mode is the run's mode, and table is the first header cell of the run's table in RESULTS.md.
type publishedRun struct {
	file, mode, table string
	// noPlot reports whether the run has no plot because each panel would have only one point.
	noPlot bool
}

var shownRuns = []publishedRun{
	{file: "nftables", mode: "nftables", table: "mode nftables"},
	{file: "iptables-legacy", mode: "iptables-legacy", table: "mode iptables-legacy"},
	{file: "iptables-nft", mode: "iptables-nft", table: "mode iptables-nft"},
	{file: "ipvs", mode: "ipvs", table: "mode ipvs"},
	{file: "large", mode: "nftables", table: "from an API server", noPlot: true},
}

func (s publishedRun) load(t *testing.T) (results, options) {
	t.Helper()
	m, err := findMode(s.mode)
	if err != nil {
		t.Fatal(err)
	}
	f, err := kit.Load(filepath.Join("results", s.file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return results{f}, options{mode: m}
}

func TestPlotsMatchFigures(t *testing.T) {
	for _, run := range shownRuns {
		if run.noPlot {
			continue
		}
		path := filepath.Join("results", run.file+".svg")
		r, opts := run.load(t)
		opts.plot = path
		if *update {
			if err := r.savePlot(opts); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), r.draw(opts)); diff != "" {
			t.Errorf("%s shows other figures (go test -update draws it anew):\n%s", path, diff)
		}
	}
}

// The tables in RESULTS.md must contain all results in the JSON files.
func TestTablesMatchFigures(t *testing.T) {
	text, err := os.ReadFile("RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range shownRuns {
		r, _ := run.load(t)
		_, section, found := strings.Cut(string(text), fmt.Sprintf("\n| %s |", run.table))
		if !found {
			t.Fatalf("no table %s", run.table)
		}
		section, _, _ = strings.Cut(section, "\n\n")
		head, rows, _ := strings.Cut(section, "\n")
		seen := 0
		for line := range strings.Lines(rows) {
			cells := cellsOf(line)
			for i, services := range cellsOf(head) {
				seen += compareCell(t, r, run.table+": "+cells[0], services, cells[i+1])
			}
		}
		if seen != len(r.Figures) {
			t.Errorf("the table %s has %d figures, the file %d", run.table, seen, len(r.Figures))
		}
	}
}

func cellsOf(line string) []string {
	var all []string
	for cell := range strings.SplitSeq(strings.Trim(line, "| \n"), "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

// compareCell compares a cell with the results of Edgeway, the peer program and the floor program, and returns the
// number of results in the cell. The row argument has the form "table: measure, unit".
func compareCell(t *testing.T, r results, row, services, cell string) (seen int) {
	t.Helper()
	_, name, _ := strings.Cut(row, ": ")
	m := measure(name[:max(0, strings.LastIndex(name, ","))])
	n, err := strconv.Atoi(strings.ReplaceAll(services, ",", ""))
	divisor, _ := unit(m)
	for i, program := range []string{oursName, peerName, floorName} {
		parts := strings.Split(cell, "/")
		if i >= len(parts) || err != nil {
			break
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(parts[i]), 64)
		if err != nil {
			continue // skip the separator below the header, and programs that were not measured
		}
		seen++
		if median, ok := r.median(m, n, program); !ok || math.Abs(median/divisor-value) > value/1000 {
			t.Errorf("%s, %s Services, %s: %v in the table, %v in the file", row, services, program, value,
				median/divisor)
		}
	}
	return seen
}
