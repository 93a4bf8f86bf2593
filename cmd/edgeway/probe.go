package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
)

func probeCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "probe",
		Short: "Report which backends this host can run, without changing anything",
		Long: "Report for each backend whether this host has the kernel features and the programs that " +
			"the backend needs.\n\nThe command changes nothing. The command fails if this host cannot run the " +
			"configured backend or, without a valid\nconfiguration, the default backend.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := daemon.LoadConfig(g.config)
			if err != nil {
				cfg = config.Default() // probe works without a valid configuration, too
			}
			var fault error
			for _, p := range daemon.Probe(cmd.Context(), cfg) {
				switch {
				case p.Err == nil:
					fmt.Fprintf(cmd.OutOrStdout(), "%s: can run\n", p.Backend)
					for _, f := range p.Faults {
						fmt.Fprintf(cmd.OutOrStdout(), "  but %s\n  fix: %s\n", f.Message, f.Fix)
					}
				case p.Backend == cfg.Proxy.Backend:
					fault = fmt.Errorf("%s, the configured backend, cannot run: %w", p.Backend, p.Err)
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "%s: cannot run: %v\n", p.Backend, p.Err)
				}
			}
			if fault == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "This host can run the backend %s.\n", cfg.Proxy.Backend)
			}
			return fault
		},
	}
}
