package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edgeway/proxiers/fault"
)

const root = "../.."

// A section heading in troubleshooting.md is one ID, or several IDs separated by commas.
func TestGuideHasSectionForEachID(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "packaging/doc/troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for line := range strings.Lines(string(guide)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings = append(headings, strings.Split(strings.TrimSpace(heading), ", ")...)
		}
	}
	if diff := cmp.Diff(fault.IDs(), headings); diff != "" {
		t.Errorf("the sections of packaging/doc/troubleshooting.md are not the IDs (-want +got):\n%s", diff)
	}
}

func TestIDsMatchUsedIDs(t *testing.T) {
	used := idsOf(t)
	if ids := fault.IDs(); !slices.IsSorted(ids) {
		t.Errorf("the IDs are not sorted: %q", ids)
	}
	if diff := cmp.Diff(fault.IDs(), slices.Sorted(maps.Keys(used.ids))); diff != "" {
		t.Errorf("fault.IDs differs from the IDs in the source (-listed +used):\n%s", diff)
	}
	for _, at := range used.unknown {
		t.Errorf("%s: this ID is not a constant: the test cannot know whether it is listed", at)
	}
}

// usage collects the IDs that Go files assign to faults.
type usage struct {
	files  *token.FileSet
	consts map[string]string // keyed by "directory name"
	ids    map[string]bool
	// unknown lists the positions of IDs that are neither constants nor copied from another fault or check.
	unknown []string
}

func idsOf(t *testing.T) *usage {
	t.Helper()
	u := &usage{files: token.NewFileSet(), consts: map[string]string{}, ids: map[string]bool{}}
	var parsed []*ast.File
	for _, top := range []string{"cmd", "daemon", "proxiers"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(u.files, path, nil, parser.SkipObjectResolution)
			parsed = append(parsed, file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range parsed {
		ast.Inspect(file, func(n ast.Node) bool { u.declare(n); return true })
	}
	usesFaults := func(i *ast.ImportSpec) bool { return i.Path.Value == `"edgeway/proxiers/fault"` }
	for _, file := range parsed {
		if slices.ContainsFunc(file.Imports, usesFaults) {
			ast.Inspect(file, func(n ast.Node) bool { u.recordIDs(n); return true })
		}
	}
	return u
}

func (u *usage) folder(n ast.Node) string {
	return filepath.Base(filepath.Dir(u.files.Position(n.Pos()).Filename))
}

func (u *usage) declare(n ast.Node) {
	spec, ok := n.(*ast.ValueSpec)
	if !ok || len(spec.Names) != len(spec.Values) {
		return
	}
	for i, name := range spec.Names {
		if text, ok := literal(spec.Values[i]); ok {
			u.consts[u.folder(n)+" "+name.Name] = text
		}
	}
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// recordIDs records the IDs in fault.New(ID, ...), Fault{ID: ID}, f.ID = ID and Check{Name: ID}.
func (u *usage) recordIDs(n ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "New" && named(f.X, "fault") {
			u.recordID(n.Args[0])
		}
	case *ast.CompositeLit:
		u.composite(n, n.Type)
		if list, ok := n.Type.(*ast.ArrayType); ok {
			for _, e := range n.Elts {
				if inner, ok := e.(*ast.CompositeLit); ok && inner.Type == nil {
					u.composite(inner, list.Elt)
				}
			}
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if field, ok := to.(*ast.SelectorExpr); ok && field.Sel.Name == "ID" && len(n.Lhs) == len(n.Rhs) {
				u.recordID(n.Rhs[i])
			}
		}
	}
}

func named(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func (u *usage) composite(lit *ast.CompositeLit, typ ast.Expr) {
	key := ""
	selector, qualified := typ.(*ast.SelectorExpr)
	switch {
	case qualified && named(selector.X, "fault") && selector.Sel.Name == "Fault":
		key = "ID"
	case named(typ, "Check"):
		key = "Name"
	}
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok && named(pair.Key, key) {
			u.recordID(pair.Value)
		}
	}
}

// recordID records the ID in the expression e. recordID ignores empty IDs, because the doctor sets them later. For an
// ID such as "source-" + name, recordID records every known ID with the prefix, because another package tests these
// IDs.
func (u *usage) recordID(e ast.Expr) {
	text, known := literal(e)
	switch e := e.(type) {
	case *ast.Ident:
		text, known = u.consts[u.folder(e)+" "+e.Name]
	case *ast.SelectorExpr:
		if folder, ok := e.X.(*ast.Ident); ok {
			text, known = u.consts[folder.Name+" "+e.Sel.Name]
		}
		if e.Sel.Name == "ID" || e.Sel.Name == "Name" { // the ID is copied from another fault or check
			return
		}
	case *ast.BinaryExpr:
		if prefix, ok := literal(e.X); ok {
			for _, id := range fault.IDs() {
				if strings.HasPrefix(id, prefix) {
					u.ids[id] = true
				}
			}
			return
		}
	}
	switch {
	case !known:
		u.unknown = append(u.unknown, u.files.Position(e.Pos()).String())
	case text != "":
		u.ids[text] = true
	}
}
