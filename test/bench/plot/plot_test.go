package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

type circle struct{ x, y float64 }

func circles(t *testing.T, svg string) []circle {
	t.Helper()
	var all []circle
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			at := map[string]float64{}
			for _, a := range e.Attr {
				at[a.Name.Local], _ = strconv.ParseFloat(a.Value, 64)
			}
			all = append(all, circle{at["cx"], at["cy"]})
		}
	}
}

// Powers of ten must be evenly spaced on an axis. Special characters in names must not break the SVG.
func TestAxesAreLogarithmic(t *testing.T) {
	got := circles(t, SVG("a < b & c", []Panel{{Title: "<t>", Lines: []Line{
		{Name: `"x"`, Points: []Point{{10, 5}, {100, 50}, {1000, 500}}},
		{Name: "y", Points: []Point{{10, 500}}},
	}}}))
	if len(got) != 4 {
		t.Fatalf("%d points are drawn", len(got))
	}
	near := func(a, b float64) bool { return a-b < 0.2 && b-a < 0.2 } // positions are rounded to a tenth of a pixel
	if right := got[1].x - got[0].x; right <= 0 || !near(got[2].x-got[1].x, right) {
		t.Errorf("not logarithmic across: %v", got)
	}
	if up := got[0].y - got[1].y; up <= 0 || !near(got[1].y-got[2].y, up) {
		t.Errorf("not logarithmic upwards: %v", got)
	}
	if got[3].y != got[2].y || got[3].x != got[0].x {
		t.Errorf("two lines have different axes: %v", got)
	}
}

// A panel that has no points, or a single point whose coordinates are powers of ten, must not break the plot.
func TestFewFigures(t *testing.T) {
	if got := circles(t, SVG("", []Panel{
		{Title: "none"},
		{Lines: []Line{{Points: []Point{{100, 1}}}}},
	})); len(got) != 1 || got[0].y != plotUpper+plotHigh {
		t.Errorf("got %v", got)
	}
	circles(t, SVG("nothing", nil))
}
