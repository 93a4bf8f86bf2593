package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/control"
)

type dryRun struct {
	on   bool
	out  *output
	wait time.Duration
}

func runCommand(g *globals) *cobra.Command {
	var dry dryRun
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: "Run the daemon until it receives SIGTERM or SIGINT. The rules stay in the kernel and " +
			"keep working after the\ndaemon exits.\n\nOn SIGHUP, the daemon reads its configuration again; an " +
			"invalid configuration changes nothing. Under systemd, the unit\nedgeway.service runs this command. " +
			"The unit is ready once the daemon has programmed the kernel. The daemon needs\nCAP_NET_ADMIN, but " +
			"not root.\n\nWith --dry-run, the command prints the Services of the plan and exits; with -o json, it " +
			"prints the plan. The exit code is\nthen 1 if an object has a problem, or if the sources have not " +
			"listed all objects in time.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dry.on:
				return printPlan(cmd, g, dry)
			case dry.out.hasFormat("json") || cmd.Flags().Changed("wait"):
				return codedError{errors.New("--output, --json and --wait require --dry-run"), exitUsage}
			}
			b := build()
			return daemon.Run(cmd.Context(), daemon.Options{
				ConfigPath: g.config, Version: b.Version, Revision: b.Revision, LogOutput: g.log,
			})
		},
	}
	cmd.Flags().BoolVar(&dry.on, "dry-run", false,
		"read the sources once, print the Services that Edgeway would serve, and change nothing")
	dry.out = outputFlag(cmd)
	cmd.Flags().DurationVar(&dry.wait, "wait", 30*time.Second,
		"the maximum `duration` that a dry run waits for the sources")
	return cmd
}

func printPlan(cmd *cobra.Command, g *globals, dry dryRun) error {
	cfg, err := daemon.LoadConfig(g.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), dry.wait,
		fmt.Errorf("the sources did not list all objects within %s: raise --wait", dry.wait))
	defer cancel()
	logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	plan, problems, err := daemon.MakePlan(ctx, cfg, logger)
	if err != nil {
		return err
	}
	if dry.out.hasFormat("json") {
		err = printJSON(cmd, "Plan", control.NewPlan(plan, false, problems))
	} else {
		err = g.print(cmd, "ServiceList", control.NewPlanTable(plan, problems), dry.out)
	}
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return codedError{errQuiet, exitFailure}
	}
	return nil
}
