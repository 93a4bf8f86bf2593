package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/doctor"
	"edgeway/daemon/doctor/finding"
)

func doctorCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at this host for what keeps connections to Services from working",
		Long: `Look at this host for what keeps connections to Services from working, and say what mends it.

Each line is one check: ok, a warning (it works, or nothing needs it now), or a problem (connections fail), with what
was seen, and below it the command, or the key of the configuration, that mends it. Nothing is changed.

With a running daemon its plan is looked at. Without one it is made of the configuration, the manifests and what the
API server, or else the last-known state, says. Run it as root: others may not read the kubeconfig and the state.

The exit code is 4 when there is a problem, and else 0, also with warnings.`,
		Args: cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		h, found := daemon.Examined(cmd.Context(), g.config, slog.New(slog.DiscardHandler))
		found = append(found, doctor.Look(cmd.Context(), h, doctor.Checks())...)
		report := doctor.NewReport(h, found)
		if err := printAnswer(cmd, report, *asJSON); err != nil {
			return err
		}
		if report.Level == finding.Problem {
			return coded{errQuiet, exitUnhealthy}
		}
		return nil
	}
	return cmd
}
