package main

import (
	"context"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

func reloadCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Reload the running daemon's configuration, and report configuration errors",
		Long: `Reload the running daemon's configuration, and report configuration errors.

If the new configuration is invalid, the previous one stays in force, and the exit code is not 0.
"systemctl reload edgeway" runs this command.`,
		Args: cobra.NoArgs,
		RunE: g.withClient(func(ctx context.Context, _ *cobra.Command, c *control.Client, _ []string) error {
			return c.Reload(ctx)
		}),
	}
}
