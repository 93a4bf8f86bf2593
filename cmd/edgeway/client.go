package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/control"
)

// answerTime is long enough for the plan of tens of thousands of Services.
const answerTime = 30 * time.Second

// socket gives the daemon's socket. With an invalid configuration a daemon that still runs with a previous
// one can be asked.
func (g *globals) socket() string {
	if c, err := daemon.LoadConfig(g.config); err == nil {
		return c.Control.Socket
	}
	return config.DefaultSocket
}

// asking makes a command's function from a question to the daemon.
func (g *globals) asking(question func(context.Context, *cobra.Command, *control.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
		defer cancel()
		err := question(ctx, cmd, control.NewClient(g.socket()), args)
		if errors.Is(err, control.ErrNotRunning) {
			err = coded{err, exitNotRunning}
		}
		return err
	}
}

// answer is the daemon's answer, as text for people and as JSON for programs.
type answer interface {
	WriteText(w io.Writer) error
}

// jsonFlag adds --json to a command that prints an answer.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

func printAnswer(cmd *cobra.Command, a answer, asJSON bool) error {
	if !asJSON {
		return a.WriteText(cmd.OutOrStdout())
	}
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(a)
}
