package file

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/daemon/files"
	"edgeway/daemon/source"
)

// CheckOptions say what to check.
type CheckOptions struct {
	Paths    []string // see Options
	NodeName string
	// Alone says that no other source has objects: what no manifest has does not exist.
	Alone bool
	// ServiceCIDRs are the ranges of ClusterIPs that are known beside those of the manifests.
	ServiceCIDRs []netip.Prefix
}

// Fault is something wrong in a manifest, and what to do about it.
type Fault struct {
	File   string
	Line   int    // 0: the file as a whole
	Object string // as in "Service default/web"; empty: it is none
	Field  string // as in "spec.ports[0].port"; empty: the object as a whole
	// Message says what is wrong. Fix says what to do, unless the message does; it may have several lines.
	Message, Fix string
	// Warning says that nothing is left out.
	Warning bool
}

// String gives "file:line: object: field: message".
func (f Fault) String() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d", place, f.Line)
	}
	parts := slices.DeleteFunc([]string{place, f.Object, f.Field, f.Message}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// Checked is what is in manifests, and what is wrong there.
type Checked struct {
	Faults []Fault
	// Objects are those that a Source would hand over.
	Objects []source.Object

	opts    CheckOptions
	source  *Source
	objects map[string]*outline // of all kinds, by their names with namespace: "Service default/web"
	// incomplete says that there is an object whose name cannot be read: what is missed may be there.
	incomplete bool
	guesses    int
}

// outline is what all objects have, and where it stands. It is read leniently: the source has been strict already.
type outline struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace, Name string
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`

	in   *page
	at   string // in the document, as in "items[2]"
	data []byte // as JSON
}

// name is "Service default/web", as source.Key has it; empty: it has none.
func (o *outline) name() string {
	switch {
	case o.Kind == "" || o.Metadata.Name == "":
		return ""
	case o.Kind == source.KindNode.String() || o.Kind == source.KindServiceCIDR.String():
		return o.Kind + " " + o.Metadata.Name
	case o.Metadata.Namespace == "":
		return fmt.Sprintf("%s %s/%s", o.Kind, metav1.NamespaceDefault, o.Metadata.Name)
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Metadata.Namespace, o.Metadata.Name)
}

// fault is one at a field of the object.
func (o *outline) fault(field, format string, args ...any) Fault {
	return Fault{
		File: o.in.file, Line: o.in.line(join(o.at, field)),
		Object: o.name(), Field: field, Message: fmt.Sprintf(format, args...),
	}
}

// page is a document in its file.
type page struct {
	file string
	part part
	read bool
	root spot
}

// line reads where all fields stand when the first one is asked for: most documents have no fault.
func (p *page) line(field string) int {
	if !p.read {
		p.read, p.root = true, spots(p.part.text)
	}
	return p.part.lines + p.root.find(strings.TrimSuffix(field, "."))
}

// Check reads all files once, as a Source does, and finds what that would leave out, and what it would pass over in
// silence.
func Check(o CheckOptions) *Checked {
	c := &Checked{
		opts: o, source: New(Options{Paths: o.Paths, NodeName: o.NodeName, Logger: slog.New(slog.DiscardHandler)}),
		objects: map[string]*outline{},
	}
	files := map[string]error{}
	for _, path := range o.Paths {
		before := len(files)
		switch err := listFiles(path, files); {
		case err != nil:
			c.unreadable(path, err)
		case len(files) == before:
			c.Faults = append(c.Faults, Fault{
				File: path, Message: "the folder has no manifests",
				Fix: "their names must end with .yaml, .yml or .json", Warning: true,
			})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		c.file(path)
	}
	c.across()
	return c
}

// At places a problem with an object.
func (c *Checked) At(p source.Problem) Fault {
	o, ok := c.objects[p.Object.String()]
	if !ok {
		return Fault{Object: p.Object.String(), Field: p.Field, Message: p.Message, Fix: advice(p.Field, p.Message)}
	}
	f := o.fault(p.Field, "%s", p.Message)
	f.Fix = advice(p.Field, p.Message)
	return f
}

func (c *Checked) unreadable(path string, err error) {
	c.incomplete = true
	c.Faults = append(c.Faults, Fault{
		File: path, Message: fmt.Sprintf("it cannot be read: %s", reason(err, maxFile)),
		Fix: files.Advice(path, err),
	})
}

func (c *Checked) file(path string) {
	data, err := files.Read(path, maxFile)
	if err != nil {
		c.unreadable(path, err)
		return
	}
	if filepath.Ext(path) != ".json" {
		if cut := cutOff(data, false); cut != "" {
			c.Faults = append(c.Faults, Fault{File: path, Line: bytes.Count(data, []byte("\n")) + 1, Message: cut})
		}
	}
	for _, p := range split(path, data) {
		if d := c.source.parse(p); !d.empty {
			c.document(&page{file: path, part: p}, d)
		}
	}
}

// document takes the faults and the objects of a document.
func (c *Checked) document(in *page, d *document) {
	outlines := outlinesOf(in)
	c.incomplete = c.incomplete || len(outlines) == 0 || len(d.faults) > 0
	for _, f := range d.faults {
		c.Faults = append(c.Faults, locate(in, outlines, f))
	}
	if d.more > 0 {
		c.Faults = append(c.Faults, Fault{
			File:    in.file,
			Message: fmt.Sprintf("… and %d more faults in this document", d.more), Fix: "correct these first",
		})
	}
	for _, o := range outlines {
		name := o.name()
		first, taken := c.objects[name]
		_, k := find(o.TypeMeta)
		switch {
		case name == "":
			c.incomplete = true
		case taken && k.kind != "":
			f := o.fault("", "%s:%d has it already, and that one counts", first.in.file, first.in.line(first.at))
			f.Fix = "remove one of them"
			c.Faults = append(c.Faults, f)
		case !taken:
			c.objects[name] = o
		}
	}
	for _, obj := range d.objects {
		if o := c.objects[obj.Key().String()]; o != nil && o.in != in {
			continue // another document has it
		}
		c.Objects = append(c.Objects, obj)
		for _, p := range obj.Problems() {
			c.Faults = append(c.Faults, c.At(p))
		}
	}
}

// outlinesOf gives the object of a document, or the list and its items; none: it is no object.
func outlinesOf(in *page) []*outline {
	data, err := toJSON(in.part.text)
	if err != nil {
		return nil
	}
	root := &outline{in: in, data: data}
	if json.Unmarshal(data, root) != nil && root.Kind == "" {
		return nil
	}
	use, k := find(root.TypeMeta)
	if use != useList {
		return []*outline{root}
	}
	var out []*outline
	for i, item := range root.Items {
		o := &outline{in: in, at: fmt.Sprintf("items[%d]", i), data: item}
		_ = json.Unmarshal(item, o) // what it is not has been told
		if o.Kind == "" && o.APIVersion == "" {
			o.TypeMeta = metav1.TypeMeta{Kind: k.kind, APIVersion: k.apiVersion}
		}
		out = append(out, o)
	}
	return out
}

// locate gives a fault of the document its line, and the object that it is in.
func locate(in *page, outlines []*outline, f fault) Fault {
	if message, ok := strings.CutPrefix(f.message, notParsed); ok && f.field == "" {
		line := lineIn(message) // of the file
		_, what, ok := strings.Cut(message, fmt.Sprintf("line %d: ", line))
		if !ok { // none is told of a fault in the first line
			line, what = in.part.lines+1, strings.TrimPrefix(message, "yaml: ")
		}
		return Fault{File: in.file, Line: line, Message: notParsed + what, Fix: advice("", f.message)}
	}
	for _, o := range outlines {
		inner, ok := strings.CutPrefix(f.field, o.at+".")
		if o.at == "" {
			inner, ok = f.field, true
		}
		if ok {
			out := o.fault(inner, "%s", f.message)
			out.Fix = advice(inner, f.message)
			return out
		}
	}
	return Fault{
		File: in.file, Line: in.line(f.field), Field: f.field, Message: f.message,
		Fix: advice(f.field, f.message),
	}
}

// Compare orders by file and line.
func (f Fault) Compare(o Fault) int {
	return cmp.Or(strings.Compare(f.File, o.File), cmp.Compare(f.Line, o.Line))
}
