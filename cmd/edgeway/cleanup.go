package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/control"
)

const (
	// cleanupTime limits the time of the whole command. iptables-nft 1.8.9 takes 1.2 s to remove the rules of 2,500
	// Services. A slow board with 30,000 Services takes minutes.
	cleanupTime = 20 * time.Minute
	// cleanupReport is the time between two progress messages.
	cleanupReport = 10 * time.Second
)

func cleanupCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that the daemon put into the kernel; stop it first",
		Long: `Remove everything that a daemon of any version has put into the kernel, with any backend.

The command fails while a daemon holds the lock beside its socket, even if that daemon is hung or stopped and does not
answer: it would write its rules again. Established connections to Services end. The packages run this command when
they are removed. It takes seconds, or minutes where iptables has very many rules.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, _ := g.socket() // cleanup works without a valid configuration, too
			release, err := control.LockOut(socket)
			if errors.Is(err, control.ErrRunning) {
				return fmt.Errorf("nothing is removed: %w\n"+
					"The daemon would write its rules again, even if it does not answer now.\n"+
					"fix: systemctl stop edgeway  # or kill -KILL and the number of the process", err)
			}
			if err != nil {
				return fmt.Errorf("nothing is removed, because a daemon may be running: %w", err)
			}
			defer release()
			cfg, err := daemon.LoadConfig(g.config)
			if err != nil {
				cfg = config.Default() // cleanup works without a valid configuration, too
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cleanupTime)
			defer cancel()
			logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			done := make(chan error, 1)
			go func() { done <- daemon.Cleanup(ctx, cfg, logger) }()
			for start := time.Now(); ; {
				select {
				case err := <-done:
					return err
				case <-time.After(cleanupReport):
					logger.Info("removing rules", "since", time.Since(start).Round(time.Second), "at_most", cleanupTime)
				}
			}
		},
	}
}
