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

Each condition is "unhealthy" (the rules are not right), a "problem" (they are, and connections fail), or a "warning"
(connections work).

The exit code is 0 when it is healthy, 4 when it is degraded (connections fail though the rules are right), unhealthy (the
rules are not right) or has not read its manifests since the start, and 3 when no daemon answers.

With --wait, the command first waits until the daemon is ready, also while it is starting. If it is not ready in time,
the exit code is 4.`,
		Example: "  edgeway status\n  edgeway status --wait=2m",
		Args:    cobra.NoArgs,
	}
	out := outputFlag(cmd)
	wait := cmd.Flags().Duration("wait", 0, "wait until the daemon is ready, for this `duration` at most")
	cmd.Flags().Lookup("wait").NoOptDefVal = "30s"
	cmd.RunE = g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, _ []string) error {
		ask := c.Status
		if *wait > 0 {
			ctx = cmd.Context() // which has no limit
			ask = func(ctx context.Context) (control.Status, error) { return awaitReady(ctx, c, *wait) }
		}
		status, err := ask(ctx)
		if err != nil {
			return err
		}
		if err := printAnswer(cmd, "Status", status, out); err != nil {
			return err
		}
		if !status.Healthy || status.State == health.StateDegraded || !status.Ready && status.NodeEligible {
			return coded{errQuiet, exitUnhealthy}
		}
		return nil
	})
	return cmd
}

// pollReady is the time between two questions of awaitReady.
const pollReady = 200 * time.Millisecond

// awaitReady asks until the daemon is ready, or the time is over. It returns the last status, or the reason why there
// is none. The daemon of a Node that leaves never becomes ready.
func awaitReady(ctx context.Context, c *control.Client, limit time.Duration) (status control.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = errors.New("it does not answer")
	for ctx.Err() == nil {
		answer, failure := c.Status(ctx)
		if ctx.Err() == nil { // otherwise the failure is the limit
			status, err = answer, failure
		}
		ready := status.Ready || status.Healthy && !status.NodeEligible
		if err == nil && ready || errors.Is(err, control.ErrDenied) {
			return status, err
		}
		select {
		case <-time.After(pollReady):
		case <-ctx.Done():
		}
	}
	if err != nil {
		err = coded{fmt.Errorf("the daemon was not ready within %s: %w", limit, err), exitUnhealthy}
	}
	return status, err
}
