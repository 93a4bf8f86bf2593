package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// maxBinary is the size in bytes that the program may have as it is released. What is mapped of it is a large part of the memory
// of a daemon that has little to do.
const maxBinary = 22_700_000

// One call of text/template, or of reflect.Value.Method, in a package that is linked makes it a fifth larger.
func TestTheProgramStaysSmall(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the bound is that of amd64")
	}
	path := filepath.Join(t.TempDir(), "edgeway")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBinary {
		t.Errorf("it has %d bytes, more than %d: look at go tool nm -size, and at <ReflectMethod> in go build -ldflags=-dumpdep", info.Size(), maxBinary)
	}
}
