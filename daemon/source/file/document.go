package file

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

type document struct {
	sum     [sha256.Size]byte // the checksum of the document's text
	line    int               // the first line of the document in the file
	empty   bool              // whether the document contains only white space and comments
	objects []source.Object
	// listPaths maps each object in a list to the object's path in the document, such as "items[2]".
	listPaths map[source.Key]string
	// invalidObjects contains the keys of the invalid objects. An invalid object holds only faults.
	invalidObjects map[source.Key]bool
	// faults lists the first maxFaults reasons why the document, or an item of its list, is unusable. A usable object
	// stores its own faults.
	faults []fault.Fault
	// omittedFaults is the number of reasons that faults omits.
	omittedFaults int
	ignored       []ignored
}

type ignored struct{ at, version, kind, namespace, name string }

// maxFaults is the maximum number of faults that Edgeway reports for one file.
const maxFaults = 20

func (d *document) addf(field, fix, format string, args ...any) {
	if len(d.faults) == maxFaults {
		d.omittedFaults++
		return
	}
	f := source.FaultOf(source.Key{}, field, format, args...)
	f.Fix = fix
	d.faults = append(d.faults, f)
}

func (d *document) hasFaults() bool {
	return len(d.faults) > 0 ||
		slices.ContainsFunc(d.objects, func(o source.Object) bool { return len(o.Problems()) > 0 })
}

type part struct {
	text  []byte
	lines int // the number of lines before the text
}

// split returns the documents of a file. If a JSON file contains text that is not JSON, the last document contains that
// text and the rest of the file.
func split(path string, data []byte) []part {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if filepath.Ext(path) == ".json" {
		return slices.Collect(splitJSON(data))
	}
	return slices.Collect(splitYAML(data))
}

func splitJSON(data []byte) iter.Seq[part] {
	return func(yield func(part) bool) {
		dec := json.NewDecoder(bytes.NewReader(data))
		start, lines := 0, 0
		for {
			var raw json.RawMessage
			err := dec.Decode(&raw)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(part{data[start:], lines})
				return
			}
			end := int(dec.InputOffset())
			if !yield(part{data[start:end], lines}) {
				return
			}
			lines += bytes.Count(data[start:end], []byte("\n"))
			start = end
		}
	}
}

func splitYAML(data []byte) iter.Seq[part] {
	return func(yield func(part) bool) {
		start, pos := 0, 0
		before, lines := 0, 0
		for line := range bytes.Lines(data) {
			if isMarker(line) {
				if !yield(part{data[start:pos], before}) {
					return
				}
				start, before = pos+3, lines
			}
			pos += len(line)
			lines++
		}
		yield(part{data[start:], before})
	}
}

// isMarker reports whether a line starts or ends a document.
func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.ContainsRune(" \t\r\n", rune(line[3]))
}

// parse decodes a document, and records an error or a panic as a fault of the document.
func (s *Source) parse(path string, p part) *document {
	var d *document
	err := contain.Call(func() error {
		d = s.parsePart(path, p)
		d.locate(path, p)
		return nil
	})
	if err != nil {
		s.options.Logger.Error("document panicked", "error", err, "stack", contain.Stack(err))
		d = new(document)
		d.addf("", "", "cannot be read: %s", err)
		d.faults[0].Position = formatPosition(path, p.lines+1)
	}
	return d
}

func (s *Source) parsePart(path string, p part) *document {
	d := new(document)
	// The YAML library reports no line number for an error in the first line.
	data, err := toJSON(slices.Concat([]byte("\n"), p.text))
	switch {
	case err != nil:
		d.unparsable(path, p, err)
		return d
	case string(data) == "null":
		d.empty = true
		return d
	}
	s.decode(d, "", data, metav1.TypeMeta{}, true)
	return d
}

var namedLine = regexp.MustCompile(`(?m)(^yaml: |^  |" already defined at )line ([0-9]+)`)

func (d *document) unparsable(path string, p part, err error) {
	line, message := p.lines+1, oneLine(adjustLines(p, err)) // no line number for an error in the first line
	if found := firstLine.FindStringSubmatch(message); found != nil {
		line, _ = strconv.Atoi(found[1]) // the match holds only digits
		message = message[len(found[0]):]
	}
	fix := ""
	switch {
	case strings.Contains(message, "cannot start any token"):
		fix = "indent with spaces, not with tabs"
	case strings.Contains(message, "already defined"):
		fix = "remove one of the duplicates, or write --- between two objects"
	}
	d.addf("", fix, "cannot be parsed: %s", strings.TrimPrefix(message, "yaml: "))
	d.faults[0].Position = formatPosition(path, line)
}

var firstLine = regexp.MustCompile(`^yaml: (?:unmarshal errors: )?line ([0-9]+): `)

// adjustLines returns the error with line numbers relative to the start of the file.
func adjustLines(p part, err error) error {
	shift := p.lines - 1 // parsePart inserted a line before the document
	if strings.Contains(err.Error(), "did not find expected ','") {
		shift++ // the library reports the line before the list or map
	}
	return errors.New(namedLine.ReplaceAllStringFunc(err.Error(), func(found string) string {
		parts := namedLine.FindStringSubmatch(found)
		line, _ := strconv.Atoi(parts[2]) // the match holds only digits
		return fmt.Sprintf("%sline %d", parts[1], max(line+shift, p.lines+1))
	}))
}

// decode adds one object, or the items of a list, to the document. The parameter at is the path of the object in the
// document, and inherited is the kind that a typed list, such as a ServiceList, specifies for items without a kind.
func (s *Source) decode(d *document, at string, data []byte, inherited metav1.TypeMeta, lists bool) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(data, &meta); err != nil {
		d.addf(at, "", "an object with apiVersion and kind is required: %s", oneLine(err))
		return
	}
	if meta.Kind == "" && meta.APIVersion == "" {
		meta = inherited
	}
	switch use, k := find(meta); {
	case meta.Kind == "":
		d.addf(join(at, "kind"), "set kind to Service, EndpointSlice, Node or ServiceCIDR", "missing")
	case meta.APIVersion == "":
		d.addf(join(at, "apiVersion"), apiVersionFix, "missing")
	case use == useObject:
		before := len(d.objects)
		k.add(s, d, at, data)
		if at != "" && len(d.objects) > before {
			d.listPaths[d.objects[before].Key()] = at
		}
	case use == useList && lists:
		s.decodeList(d, data, metav1.TypeMeta{Kind: k.kind, APIVersion: k.apiVersion})
	case use == otherVersion:
		d.addf(join(at, "apiVersion"), "", "%.64q is not supported for kind %s: the apiVersion must be %s",
			meta.APIVersion,
			meta.Kind, k.apiVersion)
	case isMisspelt(meta):
		d.addf(join(at, "kind"), "kubectl api-resources", "%.64q has no kind %.64q", meta.APIVersion, meta.Kind)
	default:
		s.ignore(d, at, data, meta)
	}
}

// maxIgnored is the maximum number of ignored kinds that Edgeway logs.
const maxIgnored = 100

// ignore records an object of a kind that Edgeway does not use. The object's apiVersion may be misspelt (see
// findMisspelt). ignore logs each kind once.
func (s *Source) ignore(d *document, at string, data []byte, meta metav1.TypeMeta) {
	var named struct {
		Metadata struct{ Namespace, Name string } `json:"metadata"`
	}
	if json.Unmarshal(data, &named) == nil && named.Metadata.Name != "" {
		d.ignored = append(d.ignored, ignored{
			at: at, version: meta.APIVersion, kind: meta.Kind,
			namespace: cmp.Or(named.Metadata.Namespace, metav1.NamespaceDefault), name: named.Metadata.Name,
		})
	}
	name := meta.APIVersion + " " + meta.Kind
	if !s.ignored[name] && len(s.ignored) < maxIgnored {
		s.ignored[name] = true
		s.options.Logger.Info("ignoring objects of an unsupported kind", "api_version", meta.APIVersion,
			"kind", meta.Kind)
	}
}

func (s *Source) decodeList(d *document, data []byte, inherited metav1.TypeMeta) {
	var list struct {
		Items *[]json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		d.addf("items", "", "%s", oneLine(err))
		return
	}
	if list.Items == nil {
		d.addf("items", "", "missing")
		return
	}
	d.listPaths = make(map[source.Key]string, len(*list.Items))
	for i, item := range *list.Items {
		s.decode(d, fmt.Sprintf("items[%d]", i), item, inherited, false)
	}
}

// unmarshal decodes data strictly and adds any errors to the document's faults.
func unmarshal(d *document, at string, data []byte, into any) bool {
	strict, err := kjson.UnmarshalStrict(data, into)
	var typeErr *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typeErr) && typeErr.Field != "":
		d.addf(join(at, jsonPath(typeErr.Field)), "", "a %s is not allowed here", typeErr.Value)
		return false
	case err != nil:
		d.addf(at, "", "cannot be decoded: %s", oneLine(err))
		return false
	}
	for _, err := range strict {
		what, field, ok := strings.Cut(err.Error(), ` "`) // for example: unknown field "spec.prots"
		if !ok {
			d.addf(at, "", "%s", oneLine(err))
			continue
		}
		field = strings.TrimSuffix(field, `"`)
		fix := "" // a duplicate field has no fix
		if what == "unknown field" {
			fix = "remove the field, or correct its name"
		}
		d.addf(join(at, field), fix, "%s", what)
	}
	return len(strict) == 0
}

// jsonPath removes the embedded struct names that the JSON library (sigs.k8s.io/json 2025-07-30) inserts into paths. No
// Kubernetes API field starts with a capital letter.
func jsonPath(path string) string {
	steps := strings.Split(path, ".")
	return strings.Join(slices.DeleteFunc(steps, func(s string) bool { return s != "" && s[0] >= 'A' && s[0] <= 'Z' }),
		".")
}

func join(at, field string) string { return strings.TrimPrefix(at+"."+field, ".") }

// oneLine shortens an error message from the YAML or JSON library to one line.
func oneLine(err error) string {
	return fmt.Sprintf("%.300s", strings.Join(strings.Fields(err.Error()), " "))
}
