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

// The exit codes, as edgeway(8) documents them.
const (
	exitOK         = 0
	exitFailure    = 1 // what was asked for failed
	exitUsage      = 2 // the command line, the configuration or what it names is invalid; edgeway.service is not started again
	exitNotRunning = 3 // no daemon answers at the socket
	exitUnhealthy  = 4 // status, doctor: Services do not work as they should
)

// execute runs one command line and gives its exit code. An error is printed here and nowhere else. The daemon's log
// goes to stderr itself, which may be the journal; everything else that a command prints is cleaned.
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

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

// Unwrap gives the error without its code.
func (c coded) Unwrap() error { return c.error }

// errQuiet goes with an exit code when the output has already said everything.
var errQuiet = errors.New("said already")

// exitCode: an error from before the command began is cobra's, about the command line.
func exitCode(err error, started bool) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	_, invalid := errors.AsType[*config.Error](err)
	_, permanent := errors.AsType[*daemon.Permanent](err)
	if invalid || permanent || !started {
		return exitUsage
	}
	return exitFailure
}
