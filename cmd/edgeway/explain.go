package main

import (
	"context"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

func explainCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain source destination[/protocol]",
		Short: "Show what happens to a new connection, why, and how to fix it",
		Long: `Show what happens to a new connection, why, and how to fix it.

The source is an address, or "host" for this host itself: then the kernel is asked for the route and the source. An
interface may follow the address, as in 10.244.0.5@cni0, where pods are detected by the interface that they come in by.

The destination is an address and a port, localhost and a port, or the name of a Service, with its namespace if others
have the name, and with one of its ports, as a number or by its name, if it has several. An address whose Services have
one port needs none. Of a Service's addresses, one is taken that such a client uses.
The protocol is tcp (the default), udp or sctp.`,
		Example: "  edgeway explain 198.51.100.7 203.0.113.10:443\n  edgeway explain host kube-system/kube-dns:53/udp\n  edgeway explain host localhost:30080",
		Args:    between(2, 2),
	}
	out := outputFlag(cmd)
	exitCode := cmd.Flags().Bool("exit-code", false, "exit with 4 if the connection is not forwarded to an endpoint")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string,
		typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []cobra.Completion{"host"}, cobra.ShellCompDirectiveNoFileComp
		}
		return g.completeService(1)(cmd, args, typed)
	}
	cmd.RunE = g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		explanation, err := c.Explain(ctx, args[0], args[1], "")
		if err != nil {
			return err
		}
		if err := g.print(cmd, "Explanation", explanation, out); err != nil {
			return err
		}
		if *exitCode && !explanation.Forwarded() {
			return coded{errQuiet, exitUnhealthy}
		}
		return nil
	})
	return cmd
}
