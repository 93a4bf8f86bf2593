package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/control"
)

func runCommand(g *globals) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Be the daemon",
		Long: `Be the daemon, until SIGTERM or SIGINT. The Services stay in the kernel and go on working after it ended.

SIGHUP reads the configuration again; one with a fault changes nothing. Under systemd the unit edgeway.service runs this
command: it is ready when the kernel has been programmed, and it need not be root: CAP_NET_ADMIN is enough.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return printPlan(cmd, g)
			}
			b := build()
			return daemon.Run(cmd.Context(), daemon.Options{
				ConfigPath: g.config, Version: b.Version, Revision: b.Revision, LogOutput: cmd.ErrOrStderr(),
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "read the sources once, print the plan, and touch nothing")
	return cmd
}

func printPlan(cmd *cobra.Command, g *globals) error {
	cfg, err := daemon.LoadConfig(g.config)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	plan, problems, err := daemon.MakePlan(cmd.Context(), cfg, logger)
	if err != nil {
		return err
	}
	return control.NewPlan(plan, problems).WriteText(cmd.OutOrStdout())
}
