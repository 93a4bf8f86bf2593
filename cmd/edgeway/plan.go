package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

func planCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [namespace/name]",
		Short: "Print the plan of the running daemon as JSON",
		Long: `Print as JSON what the running daemon programs into the kernel, for all Services or for ` +
			`one Service. "edgeway services"
and "edgeway explain" show the same facts as text.

For each port of a ` +
			`Service, the plan contains the addresses (frontends) and the endpoints. "routes" describes what ` +
			`happens
to connections from pods, from this host and from outside, in this order. "pools" contains ` +
			`the endpoints for the traffic
policies Cluster and Local. "problems" lists the objects that Edgeway ` +
			`ignores, completely or in part.`,
		Args:              between(0, 1),
		ValidArgsFunction: g.completeService(0),
	}
	outputFlag(cmd)
	cmd.RunE = g.withClient(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		plan, err := c.Plan(ctx, strings.Join(args, ""))
		if err != nil {
			return err
		}
		return printJSON(cmd, "Plan", plan)
	})
	return cmd
}
