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
		Short: "Say whether this host has what the backends need; changes nothing",
		Long: `Say for each backend whether this host has what it needs: the kernel's features and the programs.

Nothing is changed. The exit code is about the backend of the configuration, or the default one while there is none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := daemon.LoadConfig(g.config)
			if err != nil {
				cfg = config.Default() // one asks before there is a configuration, too
			}
			var fault error
			for _, p := range daemon.Probe(cmd.Context()) {
				switch {
				case p.Err == nil:
					fmt.Fprintf(cmd.OutOrStdout(), "%s: can run\n", p.Backend)
				case p.Backend == cfg.Proxy.Backend:
					fault = fmt.Errorf("%s, the configured backend, can not run: %w", p.Backend, p.Err)
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "%s: can not run: %v\n", p.Backend, p.Err)
				}
			}
			return fault
		},
	}
}
