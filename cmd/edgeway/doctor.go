package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/doctor"
	"edgeway/daemon/doctor/connect"
	"edgeway/proxiers/fault"
)

func doctorCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [namespace/name]",
		Short: "Find out why connections to Services fail on this host",
		Long: "Find out why connections to Services fail on this host, and how to fix the " +
			"problem.\n\nEach line is the result of one check: ok, a notice, a warning (connections work, but with a " +
			"restriction), a problem\n(connections fail) or unhealthy (the rules in the kernel are wrong or " +
			"missing). The fix follows the result, and is a\ncommand or a configuration key. The command changes " +
			"nothing.\n\nThe command checks the plan of the running daemon. Without a daemon, the command " +
			"computes a plan from the configuration,\nthe manifests and the last-known state or, if there is no " +
			"last-known state, the objects of the API server. Run the\ncommand as root, because other users " +
			"cannot read the kubeconfig and the state.\n\nWith --connect, the command connects from this host to " +
			"the frontends of Services and to their endpoints, closes the\nconnections immediately, and reports " +
			"whether the fault is on this host or at an endpoint. With --trace, the kernel also\ntraces the " +
			"packets of up to three connections that get no response, and the command names the rule that drops the\n" +
			"packets.\n\nThe exit code is 4 if there is a problem, and otherwise 0. Warnings do not affect the exit " +
			"code.",
		Example: "  edgeway doctor\n  edgeway doctor --connect default/web --trace",
		Args:    between(0, 1),

		ValidArgsFunction: g.completeService(0),
	}
	out := outputFlag(cmd)
	var try connect.Options
	connects := cmd.Flags().Bool("connect", false,
		"connect to the given Service, or to all Services, and to their endpoints")
	cmd.Flags().BoolVar(&try.UDP, "udp", false, "with --connect: also connect over UDP")
	cmd.Flags().BoolVar(&try.Trace, "trace", false,
		"with --connect: trace up to three connections that get no response, and name the rule that "+
			"drops the packets")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*connects && (len(args) > 0 || try.UDP || try.Trace) {
			return codedError{errors.New("a Service argument, --udp and --trace require --connect"), exitUsage}
		}
		h, found := g.examine(cmd.Context())
		if *connects && h.Plan != nil {
			try.Plan, try.Service, try.ChecksSetting = h.Plan, strings.Join(args, ""), h.ChecksSetting()
			found = append(found, connect.Run(cmd.Context(), try)...)
		}
		report := doctor.NewReport(h, found)
		if err := g.print(cmd, "DoctorReport", report, out); err != nil {
			return err
		}
		if report.Severity >= fault.Problem {
			return codedError{errQuiet, exitUnhealthy}
		}
		return nil
	}
	return cmd
}

func (g *globals) examine(ctx context.Context) (*doctor.Host, []fault.Fault) {
	h, found := daemon.ExamineHost(ctx, g.config, slog.New(slog.DiscardHandler))
	return h, append(found, doctor.RunChecks(ctx, h, doctor.Checks())...)
}
