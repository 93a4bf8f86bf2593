package journal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"edgeway/daemon/config"
)

const root = "../.."

// explanation is an entry of the catalog.
type explanation struct {
	subject, body string
	fields        []string // that the text asks for
}

func readCatalog(t *testing.T) map[string]explanation {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "units", "edgeway.catalog"))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]explanation{}
	for part := range strings.SplitSeq(string(text), "\n-- ") {
		id, rest, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(id, "#") {
			continue
		}
		if _, twice := entries[id]; twice {
			t.Errorf("%s is in the catalog twice", id)
		}
		header, body, _ := strings.Cut(rest, "\n\n")
		var e explanation
		for line := range strings.SplitSeq(header, "\n") {
			if subject, ok := strings.CutPrefix(line, "Subject: "); ok {
				e.subject = subject
			}
		}
		e.body = strings.TrimSpace(body)
		for _, m := range regexp.MustCompile(`@([A-Z_]+)@`).FindAllStringSubmatch(e.body, -1) {
			e.fields = append(e.fields, m[1])
		}
		entries[id] = e
	}
	return entries
}

// logLine is a call of a logger: the keys of its attributes.
type logLine map[string]bool

// logLines finds all calls of loggers in the program by their messages, and the keys that any call of
// With adds.
func logLines(t *testing.T) (lines map[string]logLine, with logLine) {
	t.Helper()
	lines, with = map[string]logLine{}, logLine{}
	for _, dir := range []string{"cmd", "daemon", "proxiers"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					note(call, lines, with)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return lines, with
}

func note(call *ast.CallExpr, lines map[string]logLine, with logLine) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	var literals []string
	for _, arg := range call.Args {
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			literals = append(literals, text)
		}
	}
	name := strings.TrimSuffix(method.Sel.Name, "Context")
	switch {
	case len(literals) == 0:
	case name == "With":
		with[literals[0]] = true
		for _, key := range literals[1:] {
			with[key] = true
		}
	case slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log"}, name):
		if lines[literals[0]] == nil {
			lines[literals[0]] = logLine{}
		}
		for _, key := range literals[1:] {
			lines[literals[0]][key] = true
		}
	}
}

func TestEachNamedFaultIsLoggedAndExplained(t *testing.T) {
	catalog := readCatalog(t)
	lines, with := logLines(t)
	ids, messages := map[string]bool{}, map[string]bool{}
	for _, f := range Faults() {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(f.ID) || ids[f.ID] || messages[f.Message] {
			t.Errorf("%q: %s is no identifier of its own", f.Message, f.ID)
		}
		ids[f.ID], messages[f.Message] = true, true
		line := lines[f.Message]
		if line == nil {
			t.Errorf("nothing logs %q", f.Message)
			continue
		}
		entry, ok := catalog[f.ID]
		if !ok || entry.subject == "" || len(entry.body) < 100 {
			t.Errorf("%q (%s) is not explained: %+v", f.Message, f.ID, entry)
		}
		delete(catalog, f.ID)
		for key := range with {
			line[key] = true
		}
		has := fieldsWith(line)
		for _, field := range entry.fields {
			if !has[field] {
				t.Errorf("%q: the explanation shows %s, which the line does not have", f.Message, field)
			}
		}
	}
	for id := range maps.Keys(catalog) {
		t.Errorf("the catalog explains %s, which is no named fault", id)
	}
}

// fieldsWith are the fields of a line with these keys.
func fieldsWith(line logLine) map[string]bool {
	var attrs []attr
	for key := range line {
		attrs = append(attrs, attr{key, "Service a/b"})
		if key == "service" || key == "service_port" {
			attrs = append(attrs, attr{key, "a/b"})
		}
	}
	fields := map[string]bool{}
	for name := range fieldsOf(attrs) {
		fields[name] = true
	}
	return fields
}

// A key that the catalog tells people to set must exist.
func TestTheCatalogNamesKeysThatExist(t *testing.T) {
	known := map[string]bool{}
	section := ""
	for line := range strings.Lines(config.Dump(config.Default())) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			known[section] = true
		} else if key, _, ok := strings.Cut(line, " = "); ok {
			known[section+"."+key] = true
		}
	}
	named := 0
	key := regexp.MustCompile(`\b(node|source|proxy|conntrack|health|metrics|log|control)(\.[a-z_]+)+`)
	for id, e := range readCatalog(t) {
		for _, name := range key.FindAllString(e.body, -1) {
			named++
			if !known[name] {
				t.Errorf("%s names the key %s, which does not exist", id, name)
			}
		}
	}
	if named == 0 {
		t.Error("the catalog names no key")
	}
}
