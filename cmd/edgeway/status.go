package main

import (
	"context"

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
rules are not right) or has not read its manifests since the start, and 3 when no daemon answers.`,
		Args: cobra.NoArgs,
	}
	out := outputFlag(cmd)
	cmd.RunE = g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, _ []string) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if err := printAnswer(cmd, status, out); err != nil {
			return err
		}
		if !status.Healthy || status.State == health.StateDegraded || !status.Ready && status.NodeEligible {
			return coded{errQuiet, exitUnhealthy}
		}
		return nil
	})
	return cmd
}
