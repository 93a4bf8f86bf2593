// Command drawing prints packaging/doc/data-path.svg, the picture in CONTRIBUTING.md. The picture shows the packages
// from the sources to the kernel, and the path of a packet. To change the picture, edit boxes and arrows, then run "go
// test ./test/drawing -update".
package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

type kind int

const (
	outside kind = iota // the box is not part of Edgeway
	daemon
	proxiers
	kernel
	frame // the box surrounds other boxes
)

var colors = [...]struct{ fill, stroke string }{
	outside: {"#f4f4f4", "#777"}, daemon: {"#e7f1f8", "#0072b2"}, proxiers: {"#fbeee5", "#d55e00"},
	kernel: {"#e3f4ee", "#009e73"}, frame: {"none", "#999"},
}

const (
	backend   = "first stage: one of the backends"
	followers = "next stages: the followers, in this order"
	linux     = "Linux: rules, routes, connection tracking"
)

// box is a rectangle with a name and a note. Positions and sizes are in pixels. A name with a slash is a package
// directory.
type box struct {
	kind       kind
	name, note string
	x, y, w, h int
}

var boxes = []box{
	{outside, "API server", "Services, EndpointSlices", 20, 60, 190, 42},
	{outside, "manifests", "YAML or JSON files", 220, 60, 190, 42},
	{outside, "disk", "last-known state", 420, 60, 190, 42},
	{daemon, "daemon/source/kube", "lists and watches", 20, 130, 190, 42},
	{daemon, "daemon/source/file", "reads and watches", 220, 130, 190, 42},
	{daemon, "daemon/source/lastknown", "saves; loads at startup", 420, 130, 190, 42},
	{daemon, "daemon/source/convert", "validates each field, converts Kubernetes objects", 20, 200, 590, 42},
	{daemon, "daemon/tracker", "one set of objects", 220, 270, 190, 42},
	{daemon, "daemon/nodeinfo", "addresses of this host", 20, 340, 170, 42},
	{daemon, "daemon/planner", "decides all policy", 220, 340, 190, 42},
	{daemon, "daemon/endpointcheck", "dead endpoints", 440, 340, 170, 42},
	{daemon, "daemon/pipeline", "decides when to sync; applies the plan in stages", 20, 416, 590, 42},

	{frame, "readers of the state", "", 670, 130, 210, 328},
	{daemon, "daemon/control", "status, services, explain", 680, 158, 190, 46},
	{daemon, "daemon/health", "faults, for /healthz", 680, 217, 190, 46},
	{daemon, "daemon/metrics", "for Prometheus", 680, 276, 190, 46},
	{daemon, "daemon/doctor", "checks of this host", 680, 335, 190, 46},
	{daemon, "daemon/sdunit", "for systemd: ready, alive", 680, 394, 190, 46},

	{frame, backend, "", 20, 494, 350, 130},
	{proxiers, "proxiers/nftables", "sets and maps", 30, 522, 160, 42},
	{proxiers, "proxiers/iptables", "chains", 200, 522, 160, 42},
	{proxiers, "proxiers/ipvs", "IPVS on top of nftables", 30, 572, 160, 42},
	{proxiers, "proxiers/ebpf", "BPF on top of nftables", 200, 572, 160, 42},

	{frame, followers, "", 400, 494, 480, 180},
	{proxiers, "proxiers/serviceroutes", "routes to Service addresses", 410, 522, 225, 42},
	{proxiers, "proxiers/conntrack", "deletes stale entries", 645, 522, 225, 42},
	{proxiers, "proxiers/flowtable", "fast path", 410, 572, 225, 42},
	{proxiers, "proxiers/localnodeport", "NodePorts on 127.0.0.1 and ::1", 645, 572, 225, 42},
	{proxiers, "proxiers/healthcheck", "healthCheckNodePorts", 410, 622, 225, 42},

	{outside, "client", "host, pod or another host", 20, 714, 180, 112},
	{kernel, linux, "translates and forwards packets without the daemon", 250, 714, 400, 46},
	{proxiers, "proxiers/localnodeport/relay", "relays TCP to 127.0.0.1 and ::1 in the daemon", 250, 780, 400, 46},
	{outside, "endpoint", "pod, or any server", 700, 714, 180, 112},
}

// arrow is a straight line between two boxes that face each other. The label is beside a vertical arrow and above a
// horizontal arrow.
type arrow struct {
	from, to, label string
	flow            flow
}

type flow int

const (
	data flow = iota
	both      // data flows in both directions
	packets
)

var arrows = []arrow{
	{from: "API server", to: "daemon/source/kube"},
	{from: "manifests", to: "daemon/source/file"},
	{from: "disk", to: "daemon/source/lastknown", flow: both},
	{from: "daemon/source/kube", to: "daemon/source/convert"},
	{from: "daemon/source/file", to: "daemon/source/convert"},
	{from: "daemon/source/lastknown", to: "daemon/source/convert", flow: both},
	{from: "daemon/source/convert", to: "daemon/tracker", label: "objects"},
	{from: "daemon/tracker", to: "daemon/planner", label: "snapshot"},
	{from: "daemon/nodeinfo", to: "daemon/planner"},
	{from: "daemon/endpointcheck", to: "daemon/planner", flow: both},
	{from: "daemon/planner", to: "daemon/pipeline", label: "plan: ServicePorts, frontends, pools"},
	{from: "daemon/pipeline", to: "readers of the state", label: "state"},
	{from: "daemon/pipeline", to: backend, label: "plan"},
	{from: "daemon/pipeline", to: followers, label: "plan in force"},
	{from: backend, to: linux, label: "rules"},
	{from: followers, to: linux, label: "routes, conntrack entries, flowtable"},
	{from: "client", to: linux, flow: packets},
	{from: linux, to: "endpoint", flow: packets},
	{from: "client", to: "proxiers/localnodeport/relay", flow: packets},
	{from: "proxiers/localnodeport/relay", to: "endpoint", flow: packets},
}

func main() { fmt.Print(draw()) }

// draw returns the picture as SVG. The white background keeps the text legible on dark pages.
func draw() string {
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="900" height="846" viewBox="0 0 900 846" ` +
		`font-family="system-ui, sans-serif" font-size="13" fill="#222">
<title>The data path of Edgeway</title>
<defs><marker id="tip" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" refX="9" refY="5" ` +
		`orient="auto-start-reverse"><path d="M0 1L9 5L0 9z" fill="#444"/></marker></defs>
<rect width="100%" height="100%" rx="8" fill="#fff"/>
`)
	text(&b, 20, 28, "The data path of Edgeway", `font-size="16" font-weight="bold"`)
	text(&b, 20, 46, "Names with a slash are packages. Thick arrows carry packets.", `font-size="11"`)
	for _, x := range boxes {
		x.draw(&b)
	}
	for _, a := range arrows {
		a.draw(&b)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (x box) draw(b *strings.Builder) {
	c := colors[x.kind]
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="%s" stroke="%s"/>`+"\n",
		x.x, x.y, x.w, x.h, c.fill, c.stroke)
	if x.kind == frame {
		text(b, x.x+10, x.y+19, x.name, `font-size="12"`)
		return
	}
	center, middle := x.x+x.w/2, x.y+x.h/2
	text(b, center, middle-3, x.name, `text-anchor="middle"`)
	text(b, center, middle+13, x.note, `text-anchor="middle" font-size="11" fill="#555"`)
}

// ends returns the start and the end of the arrow. Both points are on the box edges that face each other, in the middle
// of the part where these edges overlap.
func (a arrow) ends() (x1, y1, x2, y2 int) {
	f, t := find(a.from), find(a.to)
	left, right := max(f.x, t.x), min(f.x+f.w, t.x+t.w)
	upper, lower := max(f.y, t.y), min(f.y+f.h, t.y+t.h)
	switch x, y := (left+right)/2, (upper+lower)/2; {
	case left < right:
		return x, f.y + f.h, x, t.y
	case f.x < t.x:
		return f.x + f.w, y, t.x, y
	default:
		return f.x, y, t.x + t.w, y
	}
}

func find(name string) box {
	return boxes[slices.IndexFunc(boxes, func(x box) bool { return x.name == name })]
}

func (a arrow) draw(b *strings.Builder) {
	x1, y1, x2, y2 := a.ends()
	style := [...]string{
		data:    `stroke="#444" stroke-width="1.3"`,
		both:    `stroke="#444" stroke-width="1.3" marker-start="url(#tip)"`,
		packets: `stroke="#444" stroke-width="3"`,
	}[a.flow]
	fmt.Fprintf(b, `<path d="M%d %dL%d %d" %s marker-end="url(#tip)"/>`+"\n", x1, y1, x2, y2, style)
	x, y, anchor := (x1+x2)/2, y1-6, "middle"
	if x1 == x2 {
		x, y, anchor = x1+8, (y1+y2)/2+4, "start"
	}
	text(b, x, y, a.label, `text-anchor="`+anchor+`" font-size="11"`)
}

func text(b *strings.Builder, x, y int, words, style string) {
	if words != "" {
		fmt.Fprintf(b, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, style, html.EscapeString(words))
	}
}
