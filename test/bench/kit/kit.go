// Package kit contains the code that the benchmarks share for storing results and running commands.
package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Main runs a benchmark with the command-line arguments, and exits when the benchmark is done or interrupted.
func Main(name string, bench func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:])
	stop()
	Exit(name, err)
}

// Exit ends the process with code 0 if err is nil. Otherwise, Exit prints err and ends the process with code 1.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run runs a command. If the command fails, the error contains the beginning of the command's output.
func Run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %.500s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// IP runs the given ip(8) commands in order, and stops at the first failure.
func IP(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		if err := Run(ctx, "ip", strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
}

// Build builds Edgeway from this repository with the most important build options of a release.
func Build(ctx context.Context, path string) error {
	return Run(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "edgeway/cmd/edgeway")
}

// Stop sends SIGTERM to a command, waits until it exits, and ignores its exit code. If the command is still running
// after the timeout, Stop kills it.
func Stop(cmd *exec.Cmd, timeout time.Duration) error {
	kill := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// Sleep waits for d, and returns an error if ctx is done first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
