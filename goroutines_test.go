package edgeway_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// allowedFiles lists the files that may start goroutines without using package contain, with the reason for each file.
var allowedFiles = map[string]string{
	"edgeway/cmd/edgeway/cleanup.go":                 "a command: a panic ends nothing else",
	"edgeway/daemon/offline.go":                      "a command: a panic ends nothing else",
	"edgeway/daemon/doctor/connect/connect.go":       "edgeway doctor --connect, which runs in the command",
	"edgeway/daemon/doctor/connect/dial.go":          "edgeway explain, which runs in the command",
	"edgeway/daemon/control/server.go":               "shuts net/http down",
	"edgeway/daemon/health/httpserve/httpserve.go":   "closes a server of net/http",
	"edgeway/daemon/instance.go":                     "a timer that frees memory",
	"edgeway/daemon/endpointcheck/checker.go":        "a timer that publishes a copy of a map",
	"edgeway/daemon/source/kube/dialer/dialer.go":    "closes a connection that comes too late",
	"edgeway/daemon/source/kube/transport.go":        "a timer that cancels a context",
	"edgeway/daemon/source/kube/dialer/tunnels.go":   "its AfterFunc closes a connection",
	"edgeway/proxiers/internal/netlink/conntrack.go": "sets a deadline",
	"edgeway/proxiers/proxiers.go":                   "Contain.Go itself",
	"edgeway/daemon/daemon.go":                       "its AfterFunc notifies the service manager",
}

func TestGoroutinesAreContained(t *testing.T) {
	found := 0
	for _, p := range list(t) {
		if !isWithin(p.ImportPath, "edgeway/cmd") && !isWithin(p.ImportPath, "edgeway/daemon") &&
			!isWithin(p.ImportPath, "edgeway/proxiers") {
			continue
		}
		for _, file := range p.GoFiles {
			for _, at := range uncontained(t, filepath.Join(p.Dir, file), &found) {
				if name := p.ImportPath + "/" + file; allowedFiles[name] == "" {
					t.Errorf("%s starts a goroutine that nothing contains: see proxiers/contain", at)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("%d goroutines found: the test looks in the wrong places", found)
	}
}

func uncontained(t *testing.T, path string, found *int) (places []token.Position) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		starts := false
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			starts = ok && (sel.Sel.Name == "Go" || sel.Sel.Name == "AfterFunc")
		}
		if starts {
			*found++
			words := strings.ToLower(string(text[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset]))
			if !strings.Contains(words, "contain") && !strings.Contains(words, "parts.run") &&
				!strings.Contains(words, "parts.failed") {
				places = append(places, files.Position(n.Pos()))
			}
		}
		return true
	})
	return places
}
