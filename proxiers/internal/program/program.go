// Package program runs the programs that read and write rules: nft and the iptables programs.
package program

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Call is one run of a program, in the network namespace of the calling thread.
type Call struct {
	Path   string
	Args   []string
	Stdin  []byte
	Stdout io.Writer
	Attr   *syscall.SysProcAttr
	// Bound is the timeout of a run, unless the context has an earlier deadline.
	Bound time.Duration
}

// waitDelay is the time limit for reading a program's output after the program has exited or was killed. A very busy
// machine may need the whole time. The time is finite, because a child process (modprobe) may keep the pipes open.
const waitDelay = 10 * time.Second

// firstToGo is the oom_score_adj of a program: if memory is short, the kernel kills the program and not the daemon,
// which retries.
const firstToGo = "500"

// large is the size of the input, in bytes, above which a program may need much memory. For smaller inputs, which
// contain single changes, setting oom_score_adj would take a tenth of the run.
const large = 64 << 10

// Run runs the program and returns its standard error. When the context is done, Run kills the program and returns
// the context's error.
func (c Call) Run(ctx context.Context) (messages []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.WaitDelay = waitDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = bytes.NewReader(c.Stdin), c.Stdout, &stderr, c.Attr
	if err = cmd.Start(); err == nil {
		if len(c.Stdin) >= large {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte(firstToGo), 0)
		}
		err = cmd.Wait()
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", c.Path, ctx.Err())
	}
	return stderr.Bytes(), err
}
