package main

import (
	"fmt"
	"os"
	"slices"

	"edgeway/test/bench/plot"
)

func (r results) sizes() []int {
	var all []int
	for k := range r.Figures {
		all = append(all, k.Services)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// draw returns an SVG picture with a panel for each measure that has results for at least two numbers of Services.
func (r results) draw(opts options) string {
	sizes := slices.DeleteFunc(r.sizes(), func(n int) bool { return n <= smallHostServices })
	type named struct{ program, name string }
	programs := []named{{oursName, oursName}, {peerName, opts.peer()}, {floorName, floorName}}
	programs = slices.DeleteFunc(programs, func(p named) bool { return !r.has(p.program) })
	var panels []plot.Panel
	for _, m := range measures() {
		divisor, unit := unit(m)
		panel, drawn := plot.Panel{Title: fmt.Sprintf("%s, %s", m, unit)}, false
		for _, p := range programs {
			line := plot.Line{Name: p.name}
			for _, s := range sizes {
				if median, ok := r.median(m, s, p.program); ok && median > 0 {
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

func (r results) has(program string) bool {
	for k := range r.Figures {
		if k.Program == program {
			return true
		}
	}
	return false
}

func (r results) savePlot(opts options) error {
	if opts.plot == "" {
		return nil
	}
	if err := os.WriteFile(opts.plot, []byte(r.draw(opts)), 0o644); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
