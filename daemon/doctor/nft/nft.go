// Package nft lists the nftables tables, and runs nft and iptables-save with limits on time and output.
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

// waitDelay is the time to wait for the remaining output of a program that has terminated.
const waitDelay = 2 * time.Second

const (
	// maxMessage is the maximum length of an error message, in bytes. nft's messages can be long, because they quote
	// nft's input.
	maxMessage = 200
	// maxRule is the maximum length of a rule's text, in bytes.
	maxRule = 200
	// maxChain is the maximum length of a chain's listing, in bytes.
	maxChain = 4 << 20
)

// ErrOutputTooLong means that a program's output exceeds the limit.
var ErrOutputTooLong = errors.New("the output is too long")

// word matches an argument that nft reads as one word. Because nft joins its arguments, a table named "a; flush
// ruleset" could otherwise change the rules.
var word = regexp.MustCompile(`^[\w./-]+$`)

// Run calls RunProgram to run nft.
func Run(ctx context.Context, limit int, input string, args ...string) ([]byte, error) {
	return RunProgram(ctx, limit, input, "nft", args...)
}

// RunProgram runs a program in the network namespace of the calling thread and returns up to limit bytes of its output.
// RunProgram passes input to the program's standard input. Each argument must be a single word. If the error is
// ErrOutputTooLong, the returned output is truncated.
func RunProgram(ctx context.Context, limit int, input, name string, args ...string) ([]byte, error) {
	for _, a := range args {
		if !word.MatchString(a) {
			return nil, fmt.Errorf("%s: invalid argument %q", name, a)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("the program %s is missing: install it", name)
	}
	var messages bytes.Buffer
	out := &boundedWriter{left: limit}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = waitDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), out, &messages
	if err = cmd.Start(); err == nil {
		// If memory runs out, the kernel kills the nft process rather than the daemon.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("500"), 0)
		err = cmd.Wait()
	}
	switch {
	case out.over:
		return out.buf.Bytes(), fmt.Errorf("%s: %w", name, ErrOutputTooLong)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", name, ctx.Err())
	case err != nil:
		return nil, failure(name, err, messages.String())
	}
	return out.buf.Bytes(), nil
}

// failure returns the first line of a program's messages as an error. nft 1.0.9 and older versions crash on rules
// written by nft 1.1.3 or newer (kubernetes#136786).
func failure(name string, err error, messages string) error {
	text, _, _ := strings.Cut(strings.TrimSpace(messages), "\n")
	if _, after, ok := strings.Cut(text, "Error: "); ok {
		text = after
	}
	if text == "" {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %s (%w)", name, text[:min(len(text), maxMessage)], err)
}

// Rule returns the text of a rule, or its handle if the rule no longer exists.
func Rule(ctx context.Context, family, table, chain string, handle uint64) string {
	mark := fmt.Sprintf(" # handle %d", handle)
	// Rule ignores the error, because a failed command prints no line with the rule's handle.
	out, _ := Run(ctx, maxChain, "", "-a", "-t", "list", "chain", family, table, chain)
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutSuffix(strings.TrimSpace(line), mark); ok && !strings.HasSuffix(text, "{") {
			return strings.ToValidUTF8(text[:min(len(text), maxRule)], "")
		}
	}
	return mark[len(" # "):]
}

// boundedWriter stores a program's output up to a limit. A write beyond the limit fails, which terminates the program.
type boundedWriter struct {
	buf  bytes.Buffer
	left int
	over bool
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.over = true
		p = p[:b.left]
	}
	b.left -= len(p)
	n, _ := b.buf.Write(p) // Write of a bytes.Buffer never fails
	if b.over {
		return n, ErrOutputTooLong
	}
	return n, nil
}
