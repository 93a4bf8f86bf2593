package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
)

func statusCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running daemon, problems first",
		Long: `Show the state of the running daemon, problems first.

Each fault is "unhealthy" (the rules in the kernel are wrong or missing), a "problem" (the rules are correct, but
connections fail), a "warning" (connections work, but with a restriction) or a "notice" (for your information).

The exit code is 0 if the daemon is healthy. The exit code is 4 if the daemon is degraded (the rules are correct, but
connections fail), unhealthy (the rules are not correct), or has not read its manifests since it started. The exit code
is 3 if the daemon does not respond.

With --wait, the command first waits until the daemon is ready, even if it is still starting. If the daemon is not ready
in time, the exit code is 4.`,
		Example: "  edgeway status\n  edgeway status --wait=2m",
		Args:    cobra.NoArgs,
	}
	out := outputFlag(cmd)
	cmd.Flags().BoolVarP(&out.verbose, "verbose", "v", false,
		"show details for developers: syncs, devices and counters")
	wait := cmd.Flags().Duration("wait", 0, "wait until the daemon is ready, for at most this `duration`")
	cmd.Flags().Lookup("wait").NoOptDefVal = "30s"
	cmd.RunE = g.withClient(func(ctx context.Context, cmd *cobra.Command, c *control.Client, _ []string) error {
		ask := c.Status
		if *wait > 0 {
			ctx = cmd.Context() // cmd.Context has no time limit
			ask = func(ctx context.Context) (control.Status, error) { return awaitReady(ctx, c, *wait) }
		}
		status, err := ask(ctx)
		if err != nil {
			return err
		}
		if err := g.print(cmd, "Status", status, out); err != nil {
			return err
		}
		if !status.Healthy || status.Health == health.StateDegraded || !status.Ready && status.NodeEligible {
			return codedError{errQuiet, exitUnhealthy}
		}
		return nil
	})
	return cmd
}

// readyPollInterval is the time between two requests from awaitReady.
const readyPollInterval = 200 * time.Millisecond

// awaitReady polls the daemon until it is ready or the time limit expires, and returns the last status, or an error if
// the last request failed. If the Node is leaving the cluster, the daemon never becomes ready, so awaitReady waits only
// until the daemon is healthy.
func awaitReady(ctx context.Context, c *control.Client, limit time.Duration) (status control.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = errors.New("the daemon does not respond")
	for ctx.Err() == nil {
		answer, failure := c.Status(ctx)
		if ctx.Err() == nil { // otherwise, the request failed because of the limit
			status, err = answer, failure
		}
		ready := status.Ready || status.Healthy && !status.NodeEligible
		if err == nil && ready || errors.Is(err, control.ErrDenied) {
			return status, err
		}
		select {
		case <-time.After(readyPollInterval):
		case <-ctx.Done():
		}
	}
	if err != nil {
		err = codedError{fmt.Errorf("the daemon was not ready within %s: %w", limit, err), exitUnhealthy}
	}
	return status, err
}
