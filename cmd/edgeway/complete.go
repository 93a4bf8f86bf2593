package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
)

const completionTimeout = 2 * time.Second

// completeService offers the names of the daemon's Services as completions for the argument at the given zero-based
// index. If the daemon does not respond, completeService offers no names, because an error message would disrupt the
// command line.
func (g *globals) completeService(index int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != index {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		socket, _ := g.socket()
		list, _ := control.NewClient(socket).Services(ctx, "")
		var names []cobra.Completion
		for i := range list.Items {
			if name := list.Items[i].FullName(); strings.HasPrefix(name, typed) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
