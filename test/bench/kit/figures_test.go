package kit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestRatio(t *testing.T) {
	mine, other, missing := Key{"delay", 100, "a"}, Key{"delay", 100, "b"}, Key{"delay", 1000, "b"}
	f := Figures{}
	for _, v := range []float64{9, 1, 10, 900, 10} {
		f.Add(mine, v)
	}
	f.Add(other, 13)
	f.Add(other, 27) // the median of two figures is their mean
	if got, ok := f.Ratio(mine, other); !ok || got != 0.5 {
		t.Errorf("got %v, %v, want 0.5", got, ok)
	}
	if got, ok := f.Ratio(mine, missing); ok {
		t.Errorf("a ratio to what was not measured: %v", got)
	}
}

func TestSave(t *testing.T) {
	f := Figures{}
	f.Add(Key{Measure: "rate", Program: "a"}, 1)
	f.Add(Key{Measure: Measure("delay").CPU(), Services: 3, Program: "a"}, 2)
	f.Add(Key{Measure: Measure("delay").CPU(), Services: 3, Program: "a"}, 4)
	path := filepath.Join(t.TempDir(), "bench.json")
	if err := f.Save(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var entries []struct {
		Measure, Program string
		Services         *int
		Median           float64
		Values           []float64
	}
	if err := json.Unmarshal(raw, &entries); err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 || entries[0].Measure != "delay, CPU" || *entries[0].Services != 3 ||
		entries[0].Median != 3 || len(entries[0].Values) != 2 || entries[1].Services != nil {
		t.Errorf("got %s", raw)
	}
}
