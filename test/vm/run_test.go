package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeQEMU stands for QEMU: it says in the file $BOOTS that it was started, and does what is asked for
// with the machine's files $EVENTS and $OUTPUT.
const fakeQEMU = `#!/bin/bash
echo >>"$BOOTS"
n=$(wc -l <"$BOOTS")
for arg; do
	case $arg in
	file,id=events,*) EVENTS=${arg#*path=} ;;
	file,id=output,*) OUTPUT=${arg#*path=} ;;
	esac
done
`

// TestOnlyABootThatDiedIsRepeated goes through the ways in which a machine may end.
func TestOnlyABootThatDiedIsRepeated(t *testing.T) {
	for _, c := range []struct {
		name, does string
		boots      int
		exit       int
		problem    string
	}{
		{"all is well", `echo started >>$EVENTS; echo hello >>$OUTPUT; echo exit 0 >>$EVENTS`, 1, 0, ""},
		{"the command fails", `echo started >>$EVENTS; echo exit 137 >>$EVENTS; exit 1`, 1, 137, ""},
		{"it dies early, once", `[ $n = 1 ] && exit 134; echo started >>$EVENTS; echo exit 5 >>$EVENTS`, 2, 5, ""},
		{"it dies early, always", `exit 134`, 3, 0, "did not boot"},
		{"it dies during the job", `echo started >>$EVENTS; exit 134`, 1, 0, "in the midst of the job"},
		{"it hangs during the job", `echo started >>$EVENTS; exec sleep 100`, 1, 0, "killed"},
		{"the exit code is cut off", `echo started >>$EVENTS; printf "exit 1" >>$EVENTS`, 1, 0, "in the midst of the job"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			root, boots := filepath.Join(dir, "root"), filepath.Join(dir, "boots")
			for file, text := range map[string]string{"qemu-system-x86_64": fakeQEMU + c.does, "root": ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			t.Setenv("BOOTS", boots)
			var out, notes strings.Builder
			j := Job{Command: []string{"true"}, Timeout: 2 * time.Second, Output: &out, Notes: &notes}
			exit, err := j.run(t.Context(), image{kernel: "kernel", root: root})
			if exit != c.exit || (err == nil) != (c.problem == "") || !strings.Contains(fmt.Sprint(err), c.problem) {
				t.Errorf("exit code %d, error %v; want %d, %q", exit, err, c.exit, c.problem)
			}
			if (notes.Len() > 0) != (c.boots > 1) {
				t.Errorf("notes: %q", notes.String())
			}
			if lines, _ := os.ReadFile(boots); len(lines) != c.boots {
				t.Errorf("%d boots, want %d", len(lines), c.boots)
			}
		})
	}
}
