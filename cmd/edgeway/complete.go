package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/control"
)

// completionTime is how long a person waits for a completion.
const completionTime = 2 * time.Second

// completeService completes the argument with this index, from 0, by the names of the Services that the daemon has, or
// that it had when it ran. It is silent about faults, as the shell's line is no place for them.
func (g *globals) completeService(index int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != index {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		names := slices.DeleteFunc(g.services(ctx), func(name string) bool { return !strings.HasPrefix(name, typed) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (g *globals) services(ctx context.Context) []string {
	socket, invalid := g.socket()
	names, err := control.NewClient(socket).Services(ctx)
	if !errors.Is(err, control.ErrNotRunning) || invalid != nil {
		return names
	}
	cfg, err := daemon.LoadConfig(g.config)
	if err != nil {
		return nil
	}
	names, err = daemon.OfflineServices(ctx, cfg)
	if err != nil {
		return nil
	}
	return names
}
