// Package program runs the programs by which rules are written and read: nft, and those of iptables.
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
	// Bound is for a run whose context has none that is shorter.
	Bound time.Duration
}

// waitDelay is for what a program has written when it has ended or was killed: as long as a very busy machine
// may need, but not for ever, as a child of its own (modprobe) may keep the pipes open.
const waitDelay = 10 * time.Second

// firstToGo is the oom_score_adj of a program: where memory is short, the kernel kills the program and not the daemon,
// which tries again.
const firstToGo = "500"

// large is the input, in bytes, from which a program may need much memory. For the others, which write single changes,
// this file of /proc costs a tenth of the run.
const large = 64 << 10

// Run gives what the program wrote to its standard error, and kills it when its time is over: then the error is the
// context's.
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
