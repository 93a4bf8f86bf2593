package main

import (
	"context"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

func planCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [namespace/name]",
		Short: "Print the plan of the running daemon, for all Services or for one",
		Long: `Print the plan of the running daemon, for all Services or for one: what it programs into the kernel.

For each port of a Service: its addresses, what happens to connections from pods, from this host and from outside, and
the endpoints. An object that is ignored, wholly or in part, is named with the reason.`,
		Args:              between(0, 1),
		ValidArgsFunction: g.completeService(0),
	}
	out := outputFlag(cmd)
	cmd.RunE = g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		plan, err := c.Plan(ctx, name)
		if err != nil {
			return err
		}
		return printAnswer(cmd, "Plan", plan, out)
	})
	return cmd
}
