package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/control"
)

// requestTimeout is the time limit for each request to the daemon, long enough for a plan with tens of thousands of
// Services.
const requestTimeout = 30 * time.Second

// socket returns the path of the daemon's socket. If the configuration is invalid, or if the current user cannot read
// it, socket returns the default path. A daemon that still uses a previous configuration may be listening on the
// default path.
func (g *globals) socket() (path string, invalid error) {
	c, err := daemon.LoadConfig(g.config)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return config.DefaultSocket, nil
	case err != nil:
		return config.DefaultSocket, err
	}
	return c.Control.Socket, nil
}

func (g *globals) withClient(
	question func(context.Context, *cobra.Command, *control.Client, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), requestTimeout)
		defer cancel()
		socket, invalid := g.socket()
		err := question(ctx, cmd, control.NewClient(socket), args)
		switch silent := errors.Is(err, control.ErrNotRunning); {
		case silent && invalid != nil:
			// Report both errors: the invalid configuration may be the reason why no daemon is listening on the default
			// socket.
			return codedError{fmt.Errorf("%w\n%w (the command used the default socket, "+
				"because the configuration is invalid)",
				invalid, err), exitUsage}
		case silent && exitCode(err, true) == exitFailure: // status --wait already has an exit code
			return codedError{err, exitNotRunning}
		case errors.Is(err, control.ErrArgument):
			return codedError{err, exitUsage}
		case invalid != nil && cmd.Name() != "reload": // reload reports the error itself
			for line := range strings.SplitSeq(invalid.Error(), "\n") {
				fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: %s\n", line)
			}
			fmt.Fprintln(cmd.ErrOrStderr(),
				"WARNING: the daemon is using the previous configuration; a restart would fail")
		}
		return err
	}
}
