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

// Call describes a run of a program in the calling thread's network namespace.
type Call struct {
	Path   string
	Args   []string
	Stdin  []byte
	Stdout io.Writer
	Attr   *syscall.SysProcAttr
	// Timeout is the maximum run time of the program. The context may have an earlier deadline.
	Timeout time.Duration
}

// waitDelay is the maximum time to read a program's output after the program exits or Edgeway kills it. The limit is
// necessary, because a child process (modprobe) may keep the pipes open. On a very busy machine, reading the output may
// take ten seconds.
const waitDelay = 10 * time.Second

// oomScoreAdj is the OOM score adjustment (oom_score_adj) of the programs that Edgeway runs. If memory is exhausted,
// the kernel kills the program instead of the daemon, and the daemon can run the program again.
const oomScoreAdj = "500"

// largeInput is the input size in bytes above which a program may need a lot of memory. For a smaller input, setting
// oom_score_adj would increase the run time by a tenth.
const largeInput = 64 << 10

// Run runs the program and returns its standard error. When the context is done, Run kills the program and returns the
// context's error.
func (c Call) Run(ctx context.Context) (messages []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.WaitDelay = waitDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = bytes.NewReader(c.Stdin), c.Stdout, &stderr, c.Attr
	if err = cmd.Start(); err == nil {
		if len(c.Stdin) >= largeInput {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte(oomScoreAdj), 0)
		}
		err = cmd.Wait()
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", c.Path, ctx.Err())
	}
	return stderr.Bytes(), err
}
