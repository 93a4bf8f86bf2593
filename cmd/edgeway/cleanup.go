package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/control"
)

func cleanupCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that the daemon put into the kernel; stop it first",
		Long: `Remove everything that a daemon of any version has put into the kernel, with any backend.

It fails while the daemon runs, as the daemon would write its rules again. Established connections to Services end. The
packages run it when they are removed.`,
		Args: cobra.NoArgs,
		RunE: g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, _ []string) error {
			if _, err := c.Status(ctx); err == nil {
				return errors.New("the daemon is running and would write its rules again: stop it first")
			}
			cfg, err := daemon.LoadConfig(g.config)
			if err != nil {
				cfg = config.Default() // cleanup works without a valid configuration, too
			}
			return daemon.Cleanup(ctx, cfg, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		}),
	}
}
