package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/text"
)

// The manual page edgeway(8) documents the exit codes.
const (
	exitOK         = 0
	exitFailure    = 1 // the requested action failed
	exitUsage      = 2 // the command line or a configured file is invalid; systemd does not restart the daemon
	exitNotRunning = 3 // no daemon responds on the socket
	exitUnhealthy  = 4 // status and doctor: a problem affects Services
)

// execute runs one command line and returns its exit code. Only execute prints errors. The daemon writes its log to
// stderr unchanged, because stderr may be the journal. execute removes control characters from all other output.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root, started := rootCommand(stdout, stderr)
	stdout, stderr = text.CleanWriter(stdout), text.CleanWriter(stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	code := exitCode(err, *started)
	if err != nil && !errors.Is(err, errQuiet) {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(stderr, "edgeway: %s\n", line)
		}
	}
	return code
}

type codedError struct {
	error
	code int
}

// Unwrap returns the error without its exit code.
func (c codedError) Unwrap() error { return c.error }

// errQuiet is the error that a command returns if it has already printed the problem, so that execute prints no
// message.
var errQuiet = errors.New("already reported")

// exitCode returns the exit code of a command that returned err. If the command has not started, err is cobra's error
// about an invalid command line.
func exitCode(err error, started bool) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[codedError](err); ok {
		return c.code
	}
	_, invalid := errors.AsType[*config.Error](err)
	_, permanent := errors.AsType[*daemon.PermanentError](err)
	if invalid || permanent || !started {
		return exitUsage
	}
	return exitFailure
}
