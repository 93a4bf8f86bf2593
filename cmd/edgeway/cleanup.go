package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/control"
)

const (
	// cleanupTime bounds the whole command. For 2,500 Services iptables-nft 1.8.9 takes 1.2 s; a slow board with
	// 30,000 takes minutes.
	cleanupTime = 20 * time.Minute
	// cleanupSays is how often it says that it goes on.
	cleanupSays = 10 * time.Second
)

func cleanupCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that the daemon put into the kernel; stop it first",
		Long: `Remove everything that a daemon of any version has put into the kernel, with any backend.

It fails while the daemon runs, as the daemon would write its rules again. Established connections to Services end. The
packages run it when they are removed. It takes seconds, or minutes where iptables has very many rules.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if g.running(cmd.Context()) {
				return errors.New("the daemon is running and would write its rules again: stop it first")
			}
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
				case <-time.After(cleanupSays):
					logger.Info("rules are being removed", "since", time.Since(start).Round(time.Second), "at_most", cleanupTime)
				}
			}
		},
	}
}

// running says whether a daemon answers.
func (g *globals) running(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	socket, _ := g.socket() // cleanup works without a valid configuration, too
	_, err := control.NewClient(socket).Status(ctx)
	return err == nil
}
