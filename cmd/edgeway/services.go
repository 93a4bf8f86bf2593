package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

func servicesCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "services [namespace | namespace/name]",
		Short: "List the Services and their problems",
		Long: `List the Services that the daemon knows, the Services of one namespace, or one Service. ` +
			`The output has one line
for each Service, whether or not the daemon serves it.

READY/ALL ` +
			`shows how many endpoint addresses get connections and respond, and how many there are in total.
STATE is "ok", or the worst of these states:

  refused by kernel   the kernel ` +
			`rejected a port, or its newest version
  left out            the Service is invalid or too big, or ` +
			`has no address that this host can serve
  not in kernel       the Service is new, and the kernel ` +
			`does not have it yet
  still in kernel     the Service was deleted, but the kernel still has it
  ` +
			`no ready endpoint   the kernel rejects connections to a port
  dead endpoints      some endpoints ` +
			`do not respond (checks.tcp)
  incomplete          Edgeway ignores a part of the Service, such as an ` +
			`address that another Service owns

The reason follows the state. For a single Service, the command ` +
			`lists all reasons, each with its fix.`,
		Example:           "  edgeway services\n  edgeway services --problems\n  edgeway services default/web -o wide",
		Args:              between(0, 1),
		ValidArgsFunction: g.completeService(0),
	}
	out := outputFlag(cmd, "wide", "name")
	problems := cmd.Flags().Bool("problems", false, "list only the Services whose state is not ok")
	cmd.RunE = g.withClient(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		only := strings.Join(args, "")
		list, err := c.Services(ctx, only)
		if err != nil {
			return err
		}
		if *problems {
			list = list.Problems()
		}
		if out.hasFormat("name") {
			for i := range list.Items {
				fmt.Fprintln(cmd.OutOrStdout(), list.Items[i].FullName())
			}
			return nil
		}
		return g.print(cmd, "ServiceList", control.ServiceTable{
			ServiceList: list, Wide: out.hasFormat("wide"), EmptyText: none(only, *problems),
		}, out)
	})
	return cmd
}

func none(only string, problems bool) string {
	text := "no Service"
	if only != "" {
		text += " in " + only
	}
	if problems {
		text += " has a problem"
	}
	return text
}
