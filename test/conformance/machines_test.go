package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"
)

const machineJobs = "../vm/jobs"

func TestMachineOnlyBackendsHaveJob(t *testing.T) {
	if inMachine() {
		return // the virtual machines contain no copy of the jobs
	}
	listed := textsIn(t, machineJobs)
	for _, b := range withoutJob(backends(), listed) {
		t.Errorf("%s cannot run here (%s), and no job of %s names it", b.Name, b.VMOnlyReason, machineJobs)
	}
	// withoutJob must return exactly the backends that no virtual-machine job names.
	stranger, known := Backend{VMOnlyReason: "to try it"}, nftablesBackend()
	stranger.Name, known.VMOnlyReason = "stranger", "to try it"
	if missing := withoutJob([]Backend{stranger, known}, listed); len(missing) != 1 || missing[0].Name != "stranger" {
		t.Errorf("without a job are %d backends, want the stranger", len(missing))
	}
}

func withoutJob(all []Backend, listed map[string]bool) (missing []Backend) {
	for _, b := range all {
		if b.VMOnlyReason != "" && !listed[b.Name] {
			missing = append(missing, b)
		}
	}
	return missing
}

func textsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s (%v)", dir, err)
	}
	texts := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					texts[text] = true
				}
			}
			return true
		})
	}
	return texts
}
