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
	// cleanupTimeout is the time limit for the whole cleanup command. iptables-nft 1.8.9 takes 1.2 s to remove the
	// rules for 2,500 Services. On a slow single-board computer, removing the rules for 30,000 Services takes minutes.
	cleanupTimeout = 20 * time.Minute
	// progressInterval is the time between two progress messages.
	progressInterval = 10 * time.Second
)

func cleanupCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove all kernel state that the daemon created; stop the daemon first",
		Long: "Remove all rules and other kernel state that any version of the daemon created with any " +
			"backend.\n\nThe command fails while a daemon holds the lock next to its socket, even if that " +
			"daemon hangs or is suspended, because\nthe daemon would write its rules again. Established " +
			"connections to Services break. The deb and rpm packages run\nthis command on removal. The command " +
			"takes a few seconds, or minutes if there are many iptables rules.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, _ := g.socket() // cleanup works without a valid configuration, too
			release, err := control.LockOut(socket)
			if errors.Is(err, control.ErrRunning) {
				return fmt.Errorf("%w, so the command removed nothing\nEven a daemon that does not respond "+
					"could write its rules again.\nfix: systemctl stop edgeway  # or: kill -KILL PID", err)
			}
			if err != nil {
				return fmt.Errorf("a daemon may be running, so the command removed nothing: %w", err)
			}
			defer release()
			cfg, err := daemon.LoadConfig(g.config)
			if err != nil {
				cfg = config.Default() // cleanup works without a valid configuration, too
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cleanupTimeout)
			defer cancel()
			logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			done := make(chan error, 1)
			go func() { done <- daemon.Cleanup(ctx, cfg, logger) }()
			for start := time.Now(); ; {
				select {
				case err := <-done:
					return err
				case <-time.After(progressInterval):
					logger.Info("removing rules",
						"since", time.Since(start).Round(time.Second), "at_most", cleanupTimeout)
				}
			}
		},
	}
}
