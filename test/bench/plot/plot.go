// Package plot draws a benchmark's results as an SVG picture with a panel for each measure.
package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Panel shows one measure. Both axes of a Panel are logarithmic, so a power law appears as a straight line and a
// constant as a horizontal line.
type Panel struct {
	Title string
	Lines []Line
}

// Line holds the results of one program. The n-th line has the same color in all panels.
type Line struct {
	Name   string
	Points []Point
}

// Point is either a result, whose X and Y are positive, or a position in the picture, in pixels.
type Point struct{ X, Y float64 }

// perRow is the number of panels in a row. The other constants define, in pixels, the size of a panel and the size and
// position of its plot area.
const (
	perRow              = 3
	width, height       = 300, 220
	plotWide, plotHigh  = 220, 140
	plotLeft, plotUpper = 48, 34
	head                = 56
)

// Color-blind readers can distinguish these colors.
var colors = [...]string{"#0072b2", "#d55e00", "#009e73"}

// SVG returns a picture of the panels, with three panels in each row.
func SVG(title string, panels []Panel) string {
	var b strings.Builder
	rows := (len(panels) + perRow - 1) / perRow
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#222">`+"\n",
		perRow*width, head+rows*height)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	text(&b, Point{16, 24}, "start", title, `font-size="15" font-weight="bold"`)
	if len(panels) > 0 {
		for i, l := range panels[0].Lines {
			x := 16 + float64(i)*130
			fmt.Fprintf(&b, `<path d="M%.0f 40h20" stroke="%s" stroke-width="2"/>`+"\n", x, colors[i%len(colors)])
			text(&b, Point{x + 26, 44}, "start", l.Name, "")
		}
	}
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%perRow*width, head+i/perRow*height)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p Panel) draw(b *strings.Builder) {
	text(b, Point{plotLeft, 18}, "start", p.Title, `font-weight="bold"`)
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, point := range l.Points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	if len(xs) == 0 {
		return
	}
	across, up := newLogScale(xs), newLogScale(ys)
	at := func(pt Point) (x, y float64) {
		return plotLeft + plotWide*across.position(pt.X), plotUpper + plotHigh*(1-up.position(pt.Y))
	}
	for _, tick := range up.ticks {
		_, y := at(Point{1, tick})
		fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="#ddd"/>`+"\n", plotLeft, y, plotWide)
		text(b, Point{plotLeft - 6, y + 4}, "end", formatNumber(tick), "")
	}
	for _, tick := range across.ticks {
		x, _ := at(Point{tick, 1})
		fmt.Fprintf(b, `<path d="M%.1f %dv%d" stroke="#ddd"/>`+"\n", x, plotUpper, plotHigh)
		text(b, Point{x, plotUpper + plotHigh + 16}, "middle", formatNumber(tick), "")
	}
	for i, l := range p.Lines {
		color := colors[i%len(colors)]
		var path strings.Builder
		for j, point := range l.Points {
			x, y := at(point)
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x, y)
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s, %s: %s</title></circle>`+"\n",
				x, y, color, html.EscapeString(l.Name), formatNumber(point.X), formatNumber(point.Y))
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), color)
	}
}

type scale struct {
	ticks []float64
	// position returns a value's position on the axis, from 0 to 1.
	position func(float64) float64
}

// newLogScale returns the scale of an axis that includes all values, and that starts and ends at powers of ten.
func newLogScale(values []float64) scale {
	from, to := math.MaxInt, math.MinInt
	for _, v := range values {
		exact := math.Log10(v)
		from, to = min(from, int(math.Floor(exact))), max(to, int(math.Ceil(exact)))
	}
	if from == to {
		to++
	}
	s := scale{position: func(v float64) float64 { return (math.Log10(v) - float64(from)) / float64(to-from) }}
	for e := from; e <= to; e++ {
		s.ticks = append(s.ticks, math.Pow10(e))
	}
	return s
}

// formatNumber formats v with at most four digits. Numbers of 10,000 and more are in thousands, as in 10k.
func formatNumber(v float64) string {
	unit := ""
	if v >= 10_000 {
		v, unit = v/1000, "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + unit
}

func text(b *strings.Builder, at Point, anchor, words, style string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", at.X, at.Y, anchor, style,
		html.EscapeString(words))
}
