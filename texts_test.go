package edgeway_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// foreignTextFiles lists the files that may search an error's text, each with the program or library that reports the
// error only as text.
var foreignTextFiles = map[string]string{
	"edgeway/daemon/config/decode.go":           "the library for TOML",
	"edgeway/daemon/doctor/firewall/read.go":    "nft",
	"edgeway/daemon/source/file/document.go":    "the libraries for YAML and JSON",
	"edgeway/daemon/source/kube/failure.go":     "net/http",
	"edgeway/proxiers/internal/nfttable/nft.go": "nft",
	"edgeway/proxiers/iptables/probe.go":        "iptables",
}

// Code must not search a fault's text, or the text of an error that Edgeway creates. Instead, the code that detects a
// fault must create a value that represents the fault.
func TestCodeDoesNotSearchErrorText(t *testing.T) {
	used := map[string]bool{}
	for _, p := range list(t) {
		if !isWithin(p.ImportPath, "edgeway/cmd") && !isWithin(p.ImportPath, "edgeway/daemon") &&
			!isWithin(p.ImportPath, "edgeway/proxiers") {
			continue
		}
		for _, name := range p.GoFiles {
			file := p.ImportPath + "/" + name
			for _, line := range searchLines(t, filepath.Join(p.Dir, name)) {
				if used[file] = true; foreignTextFiles[file] == "" {
					t.Errorf("%s:%d searches the text of an error or of a fault", file, line)
				}
			}
		}
	}
	for file := range foreignTextFiles {
		if !used[file] {
			t.Errorf("%s searches no text: it need not be listed", file)
		}
	}
}

func TestSearchedTexts(t *testing.T) {
	if got := searchLines(t, "testdata/searched.go"); !slices.Equal(got, []int{11, 12, 13, 15, 19}) {
		t.Errorf("found in lines %v", got)
	}
}

// searchLines returns the numbers of the lines that search an error's text, or a value's Message or Fix field.
func searchLines(t *testing.T, path string) (lines []int) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		texts := map[string]bool{} // the variables in this function that hold the text of an error or a fault
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if id, ok := to.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && hasText(n.Rhs[i], texts) {
						texts[id.Name] = true
					}
				}
			case *ast.CallExpr:
				if len(n.Args) > 0 && searchesText(n) &&
					slices.ContainsFunc(n.Args, func(a ast.Expr) bool { return hasText(a, texts) }) {
					lines = append(lines, files.Position(n.Pos()).Line)
				}
			}
			return true
		})
	}
	return lines
}

// searchesText reports whether a call searches text with package strings or with a regular expression. Calls that only
// split text into lines do not count.
func searchesText(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if lit, ok := call.Args[len(call.Args)-1].(*ast.BasicLit); ok && lit.Value == `"\n"` {
		return false
	}
	if of, ok := f.X.(*ast.Ident); ok && of.Name == "strings" {
		return slices.ContainsFunc([]string{"Contains", "Cut", "Has", "Index", "Last", "Split"},
			func(verb string) bool { return strings.HasPrefix(f.Sel.Name, verb) })
	}
	return strings.HasPrefix(f.Sel.Name, "MatchString") || strings.HasPrefix(f.Sel.Name, "FindString")
}

func hasText(e ast.Expr, texts map[string]bool) (has bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			has = has || texts[n.Name]
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			has = has || ok && f.Sel.Name == "Error" && len(n.Args) == 0
		case *ast.SelectorExpr:
			has = has || n.Sel.Name == "Message" || n.Sel.Name == "Fix"
		}
		return !has
	})
	return has
}
