package sim

import (
	"bytes"
	"runtime/pprof"
	"strings"
)

// goroutines returns the stacks of all goroutines with the label "process", keyed by the label's value.
func goroutines() map[string]string {
	var out bytes.Buffer
	must(pprof.Lookup("goroutine").WriteTo(&out, 1))
	found := map[string]string{}
	for stack := range strings.SplitSeq(out.String(), "\n\n") {
		if _, labels, ok := strings.Cut(stack, `"process":"`); ok {
			generation, _, _ := strings.Cut(labels, `"`)
			found[generation] += stack + "\n"
		}
	}
	return found
}
