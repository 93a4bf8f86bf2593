// Command messages prints all of Edgeway's texts (log messages, faults, errors and help) for a reviewer. Every string
// literal of at least two words counts as a text.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run("cmd", "daemon", "proxiers"); err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
}

func run(folders ...string) error {
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return printTexts(path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func printTexts(path string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var lines []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return n.Tag == nil // a struct tag is not a text
		case ast.Expr:
			text, ok := literal(n)
			if ok && len(strings.Fields(text)) > 1 {
				lines = append(lines, fmt.Sprintf("  %d\t%s", files.Position(n.Pos()).Line, strings.TrimSpace(text)))
			}
			return !ok
		}
		return true
	})
	if len(lines) > 0 {
		fmt.Printf("%s\n%s\n", path, strings.Join(slices.Compact(lines), "\n"))
	}
	return nil
}

// literal returns the value of a string literal or of concatenated string literals.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok1 := literal(e.X)
		right, ok2 := literal(e.Y)
		return left + right, ok1 && ok2 && e.Op == token.ADD
	}
	return "", false
}
