// Package nft asks for the tables of nftables, and runs the program nft, for a look at the host, within bounds in time
// and in bytes.
package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// waitDelay is for what nft has written when it has ended or was killed.
const waitDelay = 2 * time.Second

const (
	// maxMessage bounds the part of nft's message that is kept: it quotes its input. maxRule is for the text of a rule.
	maxMessage = 200
	maxRule    = 200
	// maxChain bounds the text of a chain.
	maxChain = 4 << 20
)

// ErrTooMuch says that the answer is longer than the limit.
var ErrTooMuch = errors.New("the answer is too long")

// word is what nft takes for one. It reads all arguments as one text: a table may be named "a; flush ruleset".
var word = regexp.MustCompile(`^[\w./-]+$`)

// Run gives what nft prints, at most limit bytes of it, in the network namespace of the calling thread. input, if not
// empty, is for nft's standard input ("-f -"). Arguments must be single words.
func Run(ctx context.Context, limit int, input string, args ...string) ([]byte, error) {
	for _, a := range args {
		if !word.MatchString(a) {
			return nil, fmt.Errorf("nft: %q is no name for it", a)
		}
	}
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, errors.New("the program nft is missing: install the package nftables")
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

// Rule gives the text of a rule; where it is gone, its handle.
func Rule(ctx context.Context, family, table, chain string, handle uint64) string {
	mark := fmt.Sprintf(" # handle %d", handle)
	out, _ := Run(ctx, maxChain, "", "-a", "-t", "list", "chain", family, table, chain) // without it there is no such line
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutSuffix(strings.TrimSpace(line), mark); ok && !strings.HasSuffix(text, "{") {
			return strings.ToValidUTF8(text[:min(len(text), maxRule)], "")
		}
	}
	return mark[len(" # "):]
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
