package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
)

func configCommand(g *globals) *cobra.Command {
	cmd := group("config", "Show and check the configuration")
	cmd.AddCommand(
		&cobra.Command{
			Use:   "default",
			Short: "Print a configuration file with every key, its meaning and its default",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprint(cmd.OutOrStdout(), config.CommentedDefault(daemon.Choices()))
				return err
			},
		},
		&cobra.Command{
			Use:   "check",
			Short: "Check the configuration file, its drop-ins and the kubeconfig, and list all errors",
			Args:  cobra.NoArgs,
			RunE:  func(cmd *cobra.Command, _ []string) error { return checkConfig(cmd, g.config) },
		},
		&cobra.Command{
			Use:   "dump",
			Short: "Print the configuration that is in force: the file, its drop-ins and the defaults",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := daemon.LoadConfig(g.config)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), config.Dump(c))
				return err
			},
		},
	)
	return cmd
}

func checkConfig(cmd *cobra.Command, path string) error {
	cfg, err := daemon.LoadConfig(path)
	if err != nil {
		return err
	}
	warnings, err := daemon.CheckKubeconfig(cfg)
	if err != nil {
		return coded{err, exitUsage}
	}
	for _, w := range warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: %s\n", w)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "The configuration is valid.")
	return err
}
