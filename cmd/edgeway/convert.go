package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config/kubeproxy"
	"edgeway/daemon/regular"
)

func convertCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "convert file",
		Short: "Make a configuration of one of kube-proxy",
		Long: `Make a configuration of one of kube-proxy: a KubeProxyConfiguration, or the ConfigMap that has one under config.conf. A file "-" is
the standard input.

The configuration is printed; "edgeway config check" tells what it cannot take. What has no counterpart, another meaning or another
default is said on standard error, a line for each setting.`,
		Example: "  kubectl -n kube-system get configmap kube-proxy -o yaml | edgeway convert - > edgeway.toml",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readInput(cmd, args[0])
			if err != nil {
				return fmt.Errorf("kube-proxy's configuration: %w", err)
			}
			toml, notes, err := kubeproxy.Convert(text, daemon.Choices())
			if err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "NOTE: %s\n", note)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), toml)
			return err
		},
	}
}

func readInput(cmd *cobra.Command, path string) ([]byte, error) {
	if path != "-" {
		return regular.Read(path, regular.Small)
	}
	text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), regular.Small+1))
	if err == nil && len(text) > regular.Small {
		err = fmt.Errorf("standard input: %w", regular.ErrTooLarge)
	}
	return text, err
}
