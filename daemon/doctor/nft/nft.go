// Package nft runs the program nft for a look at the host, within bounds in time and in bytes.
package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// waitDelay is for what nft has written when it has ended or was killed.
const waitDelay = 2 * time.Second

// maxMessage bounds the part of nft's message that is kept: it quotes its input.
const maxMessage = 200

// ErrMissing says that there is no such program.
var ErrMissing = errors.New("the program nft is missing: install the package nftables")

// ErrTooMuch says that the answer is longer than the limit.
var ErrTooMuch = errors.New("the answer is too long")

// Run gives what nft prints, at most limit bytes of it, in the network namespace of the calling thread. input, if not
// empty, is for nft's standard input ("-f -").
func Run(ctx context.Context, limit int, input string, args ...string) ([]byte, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, ErrMissing
	}
	var messages bytes.Buffer
	out := &bounded{left: limit}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = waitDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), out, &messages
	if err = cmd.Start(); err == nil {
		// Where memory is short the kernel is to end nft, and not the daemon.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("500"), 0)
		err = cmd.Wait()
	}
	switch {
	case out.over:
		return nil, fmt.Errorf("nft: %w", ErrTooMuch)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("nft: %w", ctx.Err())
	case err != nil:
		return nil, failure(err, messages.String())
	}
	return out.buf.Bytes(), nil
}

// failure makes one line of nft's messages. nft up to 1.0.9 dies of rules that nft 1.1.3 or newer has written
// (kubernetes#136786).
func failure(err error, messages string) error {
	text, _, _ := strings.Cut(strings.TrimSpace(messages), "\n")
	if _, after, ok := strings.Cut(text, "Error: "); ok {
		text = after
	}
	if text == "" {
		return fmt.Errorf("nft: %w", err)
	}
	return fmt.Errorf("nft: %s (%w)", text[:min(len(text), maxMessage)], err)
}

// bounded keeps what is written. Writing more fails, which ends the program.
type bounded struct {
	buf  bytes.Buffer
	left int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.over = true
		return 0, ErrTooMuch
	}
	b.left -= len(p)
	return b.buf.Write(p)
}
