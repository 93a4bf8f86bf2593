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
		Short: "Look at this host for what keeps connections to Services from working",
		Long: `Look at this host for what keeps connections to Services from working, and say how to fix it.

Each line is one check: ok, a notice, a warning (it works, with a restriction), a problem (connections fail) or
unhealthy (the kernel does not hold the plan). It says what was seen, and below it stands the command, or the key of the
configuration, that fixes it. Nothing is changed.

With a running daemon its plan is looked at. Without one it is made of the configuration, the manifests and what the
API server, or else the last-known state, says. Run it as root: others may not read the kubeconfig and the state.

With --connect it connects from this host to the frontends of Services and to their endpoints, closes the connections at
once, and says on which side the fault lies. With --trace, too, it has the kernel trace the packets of one connection that
is not answered, and names the rule that drops them, whoever made it.

The exit code is 4 when there is a problem, and else 0, also with warnings.`,
		Example: "  edgeway doctor\n  edgeway doctor --connect default/web --trace",
		Args:    between(0, 1),

		ValidArgsFunction: g.completeService(0),
	}
	out := outputFlag(cmd)
	var try connect.Options
	connects := cmd.Flags().Bool("connect", false,
		"connect to all Services, or to the one that is named, and to their endpoints")
	cmd.Flags().BoolVar(&try.UDP, "udp", false, "with --connect: also over UDP")
	cmd.Flags().BoolVar(&try.Trace, "trace", false,
		"with --connect: name the rule that drops what is not answered (traces that one connection)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*connects && (len(args) > 0 || try.UDP || try.Trace) {
			return coded{errors.New("a Service, --udp and --trace need --connect"), exitUsage}
		}
		h, found := g.examine(cmd.Context())
		if *connects && h.Plan != nil {
			try.Plan, try.Only, try.Unchecked = h.Plan, strings.Join(args, ""), h.Unchecked()
			found = append(found, connect.Look(cmd.Context(), try)...)
		}
		report := doctor.NewReport(h, found)
		if err := g.print(cmd, "DoctorReport", report, out); err != nil {
			return err
		}
		if report.Severity >= fault.Problem {
			return coded{errQuiet, exitUnhealthy}
		}
		return nil
	}
	return cmd
}

// examine runs the checks of the doctor.
func (g *globals) examine(ctx context.Context) (*doctor.Host, []fault.Fault) {
	h, found := daemon.Examined(ctx, g.config, slog.New(slog.DiscardHandler))
	return h, append(found, doctor.Look(ctx, h, doctor.Checks())...)
}
