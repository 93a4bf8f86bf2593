package main

import (
	"fmt"
	"os"
	"slices"

	"edgeway/test/bench/plot"
)

// draw gives a panel for each measure that was taken at two sizes or more.
func (r results) draw(opts options) string {
	var sizes []int
	for k := range r.Figures {
		if k.Services > fewServices {
			sizes = append(sizes, k.Services)
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	names := []struct{ program, name string }{{oursName, oursName}, {peerName, opts.peer()}, {floorName, floorName}}
	names = slices.DeleteFunc(names, func(n struct{ program, name string }) bool { return !r.has(n.program) })
	var panels []plot.Panel
	for _, m := range measures() {
		divisor, unit := unit(m)
		panel, drawn := plot.Panel{Title: fmt.Sprintf("%s, %s", m, unit)}, false
		for _, n := range names {
			line := plot.Line{Name: n.name}
			for _, s := range sizes {
				if median, ok := r.median(m, s, n.program); ok && median > 0 {
					line.Points = append(line.Points, plot.Point{X: float64(s), Y: median / divisor})
				}
			}
			panel.Lines = append(panel.Lines, line)
			drawn = drawn || len(line.Points) > 1
		}
		if drawn {
			panels = append(panels, panel)
		}
	}
	return plot.SVG(fmt.Sprintf("Mode %s: medians by number of Services", opts.mode.name), panels)
}

// has says whether anything of a program was measured.
func (r results) has(program string) bool {
	for k := range r.Figures {
		if k.Program == program {
			return true
		}
	}
	return false
}

// savePlot writes the drawing where the options want it.
func (r results) savePlot(opts options) error {
	if opts.plot == "" {
		return nil
	}
	if err := os.WriteFile(opts.plot, []byte(r.draw(opts)), 0o644); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
