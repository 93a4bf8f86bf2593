package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
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
			Short: "Check the configuration, the kubeconfig and the manifests, and list all errors",
			Long: `Check the configuration file and its drop-ins, the kubeconfig and the files that it names, the web configuration and all
manifests. What the daemon would refuse or leave out is an error, and so is a key that a new version no longer has.
Without a kubeconfig, a port of a Service that has no endpoint is a warning.
Each line names the file with the line, or the object, and what to do.

As root, what is in /etc/edgeway is read with the rights of the user edgeway, as the service reads it. A backend that cannot
run on this host is an error there, and a warning for files elsewhere, which may be for another host. Nothing is changed, and
nothing is contacted. The exit code is 2 if there are errors.`,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return checkConfig(cmd, g.config) },
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
	found, err := daemon.CheckConfig(cmd.Context(), path)
	if err != nil {
		return err
	}
	for _, f := range found {
		prefix := "edgeway"
		if f.Severity < fault.Problem {
			prefix = strings.ToUpper(f.Severity.String())
		}
		text := f.String()
		if f.Fix != "" {
			text += "; fix: " + f.Fix
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", prefix, text)
	}
	if fault.Worst(found) >= fault.Problem {
		return coded{errQuiet, exitUsage}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "The configuration is valid.")
	return err
}
