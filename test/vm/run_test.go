package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeQEMU is a script that replaces QEMU and adds a line to the file $BOOTS each time it starts. Tests append commands
// that write to the VM's files $EVENTS and $OUTPUT.
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

// installFakeQEMU puts the fake QEMU first in PATH. It returns an image, and the path of the file to which the fake
// QEMU adds a line at each start.
func installFakeQEMU(t *testing.T, does string) (img image, boots string) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"qemu-system-x86_64": fakeQEMU + does, "root": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	boots = filepath.Join(dir, "boots")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("BOOTS", boots)
	return image{kernel: "kernel", root: filepath.Join(dir, "root")}, boots
}

func TestAJobChoosesItsProcessors(t *testing.T) {
	for job, want := range map[*Job]string{
		{}: "-cpu " + DefaultCPU + " -smp 1 ", {CPU: "max,la57=off", SMP: 2}: "-cpu max,la57=off -smp 2 ",
		{Counted: true}: "-icount shift=2,sleep=off ", {Counted: true, MIPS: 1000}: "-icount shift=0,sleep=off ",
	} {
		img, arguments := installFakeQEMU(t, `echo "$@" >"$BOOTS"; echo started >>$EVENTS; echo exit 0 >>$EVENTS`)
		job.setDefaults()
		if _, err := job.run(t.Context(), img); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(arguments)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("arguments %q (%v), want %s", text, err, want)
		}
	}
}

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
		{"it dies during the job", `echo started >>$EVENTS; exit 134`, 1, 0, "before the job finished"},
		{"it hangs during the job", `echo started >>$EVENTS; exec sleep 100`, 1, 0, "killed"},
		{"the exit code is cut off", `echo started >>$EVENTS; printf "exit 1" >>$EVENTS`, 1, 0, "before the job finished"},
	} {
		t.Run(c.name, func(t *testing.T) {
			img, boots := installFakeQEMU(t, c.does)
			timeout := 2 * time.Minute
			if c.problem == "killed" {
				timeout = 2 * time.Second
			}
			var out, notes strings.Builder
			j := Job{Command: []string{"true"}, Timeout: timeout, Output: &out, Notes: &notes}
			j.setDefaults()
			exit, err := j.run(t.Context(), img)
			if exit != c.exit || (err == nil) != (c.problem == "") || !strings.Contains(fmt.Sprint(err), c.problem) {
				t.Errorf("exit code %d, error %v; want %d, %q", exit, err, c.exit, c.problem)
			}
			again, costs := strings.Count(notes.String(), "trying again"),
				strings.Count(notes.String(), "of CPU time")
			if again != c.boots-1 || costs != c.boots {
				t.Errorf("notes: %q, want each boot that is repeated, and what each costs", notes.String())
			}
			if lines, _ := os.ReadFile(boots); len(lines) != c.boots {
				t.Errorf("%d boots, want %d", len(lines), c.boots)
			}
		})
	}
}
