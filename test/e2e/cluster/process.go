package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid after done is closed
}

// startProcess runs argv in the network namespace netns, or in the current namespace if netns is "". The kernel kills
// the program when this process exits.
func startProcess(dir, netns string, argv ...string) (*process, error) {
	name := filepath.Base(argv[0])
	if netns != "" {
		argv = append([]string{"ip", "netns", "exec", netns}, argv...)
	}
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer out.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends the Pdeathsig signal when the forking thread exits, so this goroutine must stay on its
		// thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start of %s: %w", name, err)
	}
	return p, nil
}

// kill kills the program and waits until it exits. kill does nothing if p is nil.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// waitFor calls ready every 50 ms until ready returns nil. If the program exits first, waitFor returns an error. If ctx
// is done first, waitFor returns the last error from ready.
func (p *process) waitFor(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s exited before it was ready (%w):\n%s", p.name, p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w\n%s", p.name, ctx.Err(), err, p.tail())
		case <-tick.C:
		}
	}
}

func (p *process) tail() string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
