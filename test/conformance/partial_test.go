package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"edgeway/proxiers"
)

// FuzzPartial applies sequences that the fuzzer generates. Each sequence starts from the same plan, so you can
// reproduce a single failure:
//
//	go test -run '^$' -fuzz FuzzPartial -fuzzminimizetime 10x ./test/conformance
func FuzzPartial(f *testing.F) {
	f.Add([]byte{})
	for n := range 3 {
		f.Add([]byte(randomSequence(n, longestSequence)))
	}
	var walks []*randomWalk
	for _, variant := range []string{"nft", "legacy"} {
		walks = append(walks, newWalk(f, requireUsable(f, iptablesBackend(variant))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 12 * changeBytes
		for _, w := range walks {
			if err := w.applySequence(t.Context(), data[:min(len(data), most)], true); err != nil {
				if resetErr := w.reset(t.Context()); resetErr != nil {
					t.Error(resetErr)
				}
				t.Errorf("%s: %v", w.backend.Name, err)
			}
		}
	})
}

// omittingScript is a shell script that passes its input to another program. If the file "armed" exists, the script
// removes one chain from the input.
const omittingScript = `#!/bin/sh
[ -e %[1]s/armed ] || exec %[2]s "$@"
awk '
	/^:KUBE-SVC-/ && !name { name = substr($1, 2); next }
	name && $2 == name     { next }
	                       { print }
' | %[2]s "$@"
`

func TestPartialSyncWithoutChainIsDetected(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			b := requireUsable(t, iptablesBackend(variant))
			dir := t.TempDir()
			for _, family := range []string{"iptables", "ip6tables"} {
				omitChain(t, dir, family+"-"+variant+"-restore")
			}
			honest := b.New
			b.New = func(ctx context.Context, opts proxiers.Env) (proxiers.Proxier, error) {
				// The fresh host uses the original programs, so PATH must change after the fresh host has started.
				t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
				return honest(ctx, opts)
			}
			w := newWalk(t, b)
			if err := w.applySequence(t.Context(), endpointChanges(0, 10), false); err != nil {
				t.Fatalf("without the bug: %v", err)
			}
			if err := os.WriteFile(filepath.Join(dir, "armed"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			err := w.applySequence(t.Context(), endpointChanges(10, 20), false)
			if w.differences != 1 {
				t.Fatalf("%d differences, error %v; want the one that is there", w.differences, err)
			}
			t.Log(err)
		})
	}
}

func omitChain(t *testing.T, dir, program string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(omittingScript, dir, path)
	if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// endpointChanges returns a sequence of changes that delete no chain. The kernel refuses to delete a chain that a rule
// references, and such a rule may remain in the kernel if omittingScript removes a chain from the input.
func endpointChanges(from, to int) (seq sequence) {
	i := slices.IndexFunc(serviceChanges, func(k kind) bool { return k.name == "an endpoint comes" })
	kinds := len(serviceChanges) + len(stateOnlyChanges)
	for n := from; n < to; n++ {
		seq = append(seq, byte(i+kinds), byte(n), 0)
	}
	return seq
}
