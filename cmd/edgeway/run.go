package main

import (
	"log/slog"
	"runtime"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/control"
)

func runCommand(g *globals) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Run the daemon, until SIGTERM or SIGINT. The rules stay in the kernel and keep working after it ends.

SIGHUP reads the configuration again; an invalid one changes nothing. Under systemd, the unit edgeway.service runs this
command. It is ready when the kernel has been programmed, and needs CAP_NET_ADMIN, not root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return printPlan(cmd, g)
			}
			b := build()
			return daemon.Run(cmd.Context(), daemon.Options{
				ConfigPath: g.config, Version: b.Version, Revision: b.Revision, LogOutput: g.log,
				RelayLoops: spareProcessor(),
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "read the sources once, print the plan, and touch nothing")
	return cmd
}

// spareProcessor gives the number of processors that Go would use (a control group's limit counts, as it is now), and
// has it use one more: the relay's loops wait in system calls, and Go's scheduler should find a processor idle then
// (see relay.New).
func spareProcessor() int {
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + 1)
	return n
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
	return control.NewPlan(plan, problems, daemon.Gaps(cmd.Context(), cfg)).WriteText(cmd.OutOrStdout())
}
