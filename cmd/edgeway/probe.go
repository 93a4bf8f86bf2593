package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"edgeway/daemon"
)

func probeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "probe",
		Short: "Say whether this host has what the backends need; changes nothing",
		Long: `Say for each backend whether this host has what it needs: the kernel's features and the programs.

Nothing is changed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var faults []error
			for _, p := range daemon.Probe(cmd.Context()) {
				if p.Err != nil {
					faults = append(faults, fmt.Errorf("%s: %w", p.Backend, p.Err))
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: can run\n", p.Backend)
			}
			return errors.Join(faults...)
		},
	}
}
