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
		Short: "List the Services, and say what is wrong with each",
		Long: `List the Services that the daemon knows, those of one namespace, or one: a line for each, whether it is served or not.

READY/ALL counts the addresses of endpoints: those that get connections and answer, and all. STATE is "ok", or:

  refused by kernel   a port, or its newest version
  left out            the Service is invalid, too big, or has no address that this host can serve
  not in kernel       it is new, and the kernel does not have it yet
  still in kernel     it was deleted, and the kernel still has it
  no ready endpoint   connections to a port are rejected
  dead endpoints      some do not answer (checks.tcp)
  incomplete          a part of it is left out, such as an address of another Service

The reason follows. For a single Service all reasons are listed, with what to do.`,
		Example:           "  edgeway services\n  edgeway services --problems\n  edgeway services default/web -o wide",
		Args:              between(0, 1),
		ValidArgsFunction: g.completeService(0),
	}
	out := outputFlag(cmd, "wide", "name")
	problems := cmd.Flags().Bool("problems", false, "list only those whose state is not ok")
	cmd.RunE = g.asking(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		only := strings.Join(args, "")
		list, err := c.Services(ctx, only)
		if err != nil {
			return err
		}
		if *problems {
			list = list.Problems()
		}
		if out.is("name") {
			for i := range list.Items {
				fmt.Fprintln(cmd.OutOrStdout(), list.Items[i].FullName())
			}
			return nil
		}
		return printAnswer(cmd, "ServiceList", control.ServiceTable{
			ServiceList: list, Wide: out.is("wide"), Width: g.width, None: none(only, *problems),
		}, out)
	})
	return cmd
}

// none says that no Service is in the list.
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
