package main

import (
	"context"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

func explainCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain source destination:port[/protocol]",
		Short: "Show what happens to a new connection, and why",
		Long: `Show what happens to a new connection, and why.

The source is an address, or "host" for this host itself. An interface may follow the address, as
in 10.244.0.5@cni0, where pods are detected by the interface that they come in by. The protocol is
tcp (the default), udp or sctp.`,
		Example: "  edgeway explain 198.51.100.7 203.0.113.10:443\n  edgeway explain host 10.96.0.10:53/udp",
		Args:    cobra.ExactArgs(2),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		explanation, err := c.Explain(ctx, args[0], args[1], "")
		if err != nil {
			return err
		}
		return printAnswer(cmd, explanation, *asJSON)
	})
	return cmd
}
