// Package edgeway_test verifies the module's architecture rules. The tests also reject forbidden indirect imports,
// which the linter (.golangci.yml) does not report.
package edgeway_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type listed struct {
	ImportPath, Doc, Dir               string
	GoFiles                            []string
	Deps                               []string // direct and indirect dependencies, excluding test dependencies
	Imports, TestImports, XTestImports []string
}

// A rule states that packages at or below one path must not depend on packages at or below any of the forbidden paths.
type rule struct {
	packages  string
	forbidden []string
}

// rules enforce the import order cmd/edgeway, daemon, proxiers: a package must not depend on packages to the left of
// its own. None of these packages may import edgeway/test, except in tests, and packages at or below proxiers may not
// import k8s.io.
var rules = []rule{
	{packages: "edgeway/cmd", forbidden: []string{"edgeway/test"}},
	{packages: "edgeway/daemon", forbidden: []string{"edgeway/cmd", "edgeway/test"}},
	{packages: "edgeway/proxiers", forbidden: []string{"edgeway/cmd", "edgeway/daemon", "edgeway/test", "k8s.io"}},
}

func TestForbiddenDependencies(t *testing.T) {
	for _, p := range list(t) {
		for _, r := range rules {
			if !isWithin(p.ImportPath, r.packages) {
				continue
			}
			for _, dep := range p.Deps {
				if slices.ContainsFunc(r.forbidden, func(f string) bool { return isWithin(dep, f) }) {
					t.Errorf("%s depends on %s", p.ImportPath, dep)
				}
			}
		}
	}
}

// layers lists the daemon's directories by layer, from lowest to highest. A directory may import only directories in
// lower layers.
var layers = [][]string{
	{"files", "ownmark", "text"},
	{"config", "endpointcheck", "journal", "nodeinfo", "source"},
	{"tracker"},
	{"pipeline", "planner"},
	{"health", "metrics"},
	{"doctor", "sdunit"},
	{"control"},
}

func TestDaemonPackagesImportLowerLayers(t *testing.T) {
	floor := func(room string) int {
		return slices.IndexFunc(layers, func(rooms []string) bool { return slices.Contains(rooms, room) })
	}
	rooms := map[string]bool{}
	for _, p := range list(t) {
		path, ok := strings.CutPrefix(p.ImportPath, "edgeway/daemon/")
		if !ok || len(p.GoFiles) == 0 {
			continue
		}
		room, _, _ := strings.Cut(path, "/")
		rooms[room] = true
		if floor(room) < 0 {
			t.Errorf("daemon/%s is on no floor", room)
		}
		for _, dep := range p.Imports {
			dep, ok := strings.CutPrefix(dep, "edgeway/daemon/")
			other, _, _ := strings.Cut(dep, "/")
			upward := floor(other) >= floor(room) || room == "sdunit" && (other == "pipeline" || other == "source")
			if ok && other != room && upward {
				t.Errorf("%s imports %s", path, dep)
			}
		}
	}
	for _, room := range slices.Concat(layers...) {
		if !rooms[room] {
			t.Errorf("daemon/%s does not exist", room)
		}
	}
}

func TestProxierTestsDoNotImportDaemon(t *testing.T) {
	for _, p := range list(t) {
		if !isWithin(p.ImportPath, "edgeway/proxiers") {
			continue
		}
		for _, dep := range slices.Concat(p.TestImports, p.XTestImports) {
			if isWithin(dep, "edgeway/daemon") || isWithin(dep, "k8s.io") {
				t.Errorf("a test of %s imports %s", p.ImportPath, dep)
			}
		}
	}
}

func TestPlanImportsOnlyStandardLibrary(t *testing.T) {
	for _, p := range list(t) {
		allowed := map[string][]string{
			"edgeway/proxiers/plan":  nil,
			"edgeway/proxiers/fault": nil,
			"edgeway/proxiers":       {"edgeway/proxiers/plan", "edgeway/proxiers/fault"},
		}
		ours, limited := allowed[p.ImportPath]
		if !limited {
			continue
		}
		for _, dep := range p.Imports {
			if !isStandard(dep) && !slices.Contains(ours, dep) {
				t.Errorf("%s imports %s", p.ImportPath, dep)
			}
		}
	}
}

// Only the ipvs and ebpf backends, which build on nftables, may import another proxier.
func TestProxiersDoNotImportEachOther(t *testing.T) {
	shared := func(path string) bool {
		return isWithin(path, "edgeway/proxiers/internal") || slices.Contains([]string{
			"edgeway/proxiers/plan", "edgeway/proxiers/rtnl", "edgeway/proxiers/contain", "edgeway/proxiers/messageid",
			"edgeway/proxiers/nftables", "edgeway/proxiers/fault",
		}, path)
	}
	for _, p := range list(t) {
		mine := proxier(p.ImportPath)
		if mine == "" {
			continue
		}
		for _, dep := range p.Imports {
			other := proxier(dep)
			if other != "" && other != mine && !shared(dep) {
				t.Errorf("%s imports %s", p.ImportPath, dep)
			}
		}
	}
}

func TestEveryPackageHasDocComment(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no doc comment", p.ImportPath)
		}
	}
}

var backendNames = []string{"nftables", "iptables", "iptables-nft", "iptables-legacy", "ipvs", "ebpf"}

// TestOnlyBackendPackagesNameBackends verifies that backend names occur only in the backends' own directories. The
// exceptions are the daemon's list of backends, the default backend in the configuration, and code that runs the
// iptables programs to read a firewall's rules.
func TestOnlyBackendPackagesNameBackends(t *testing.T) {
	found := 0
	for _, p := range list(t) {
		if !isWithin(p.ImportPath, "edgeway/cmd") && !isWithin(p.ImportPath, "edgeway/daemon") &&
			!isWithin(p.ImportPath, "edgeway/proxiers") {
			continue
		}
		if slices.Contains(backendNames, proxier(p.ImportPath)) {
			found++
			continue
		}
		for _, file := range p.GoFiles {
			for _, text := range stringLiterals(t, filepath.Join(p.Dir, file)) {
				if (slices.Contains(backendNames, text) || slices.Contains(backendNames, proxier(text))) &&
					!mayName(p.ImportPath+"/"+file, text) {
					t.Errorf("%s/%s names the backend %q", p.ImportPath, file, text)
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d packages of backends were found: this test may check nothing", found)
	}
}

func mayName(file, text string) bool {
	switch file {
	case "edgeway/daemon/backends.go":
		return proxier(text) != ""
	case "edgeway/daemon/config/defaults.go":
		return text == "nftables" || text == "iptables"
	case "edgeway/cmd/edgeway/bugreport.go":
		return text == "iptables" // iptables is also the name of a program
	}
	return isWithin(file, "edgeway/daemon/doctor/firewall") && text == "edgeway/proxiers/iptables/xtables"
}

func stringLiterals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value) // the parser accepts only valid literals
			out = append(out, text)
		}
		return true
	})
	return out
}

// proxier returns the name of the proxier that path belongs to, for example "nftables", or "" if path belongs to none.
func proxier(path string) string {
	rest, ok := strings.CutPrefix(path, "edgeway/proxiers/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// isWithin reports whether path is root or a path below root. For example, a path in sigs.k8s.io is not within k8s.io.
func isWithin(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// isStandard reports whether path is in the standard library. The first element of a standard library path has no dot.
// Paths whose first element is "edgeway" belong to this module.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != "edgeway"
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list",
		"-json=ImportPath,Doc,Dir,GoFiles,Deps,Imports,TestImports,XTestImports", "./...")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if !slices.ContainsFunc(all, func(p listed) bool { return p.ImportPath == "edgeway/proxiers/plan" }) {
		t.Fatal("go list does not see edgeway/proxiers/plan: this test would check nothing")
	}
	return all
}
