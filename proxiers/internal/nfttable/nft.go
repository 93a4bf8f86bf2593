package nfttable

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/internal/program"
)

const (
	// openLimit bounds the start of nft, which does next to nothing then: it takes seconds where the machine is busy.
	openLimit = time.Minute
	// runLimit bounds a transaction of any size.
	runLimit = 10 * time.Minute
)

// tool is the program nft. What it is to do comes as a transaction of knftables, which renders it.
type tool struct{ path string }

// findNFT looks for the nft program.
func findNFT() (*tool, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("%w: the nft program is missing: install the package nftables, 1.0.6 or newer",
			proxiers.ErrUnsupported)
	}
	return &tool{path}, nil
}

// checkVersion finds an nft that does not answer, or is of a version that is known not to do.
func (n *tool) checkVersion(ctx context.Context) error {
	var version bytes.Buffer
	_, err := program.Call{Path: n.path, Args: []string{"--version"}, Stdout: &version, Bound: openLimit}.Run(ctx)
	switch text := strings.TrimSpace(version.String()); {
	case program.Transient(err):
		return fmt.Errorf("nft does not answer: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
	case strings.HasPrefix(text, "nftables v0.") || strings.HasPrefix(text, "nftables v1.0.0 "):
		return fmt.Errorf("%w: %s is too old: upgrade the package nftables to 1.0.6 or newer", proxiers.ErrUnsupported,
			text)
	}
	return nil
}

// newTransaction makes an empty one.
func newTransaction() *knftables.Transaction { return knftables.NewFake("", "").NewTransaction() }

// run has a transaction put in force.
func (n *tool) run(ctx context.Context, tx *knftables.Transaction) error {
	return n.do(ctx, tx, "-f", "-")
}

// check has nft and the kernel check a transaction.
func (n *tool) check(ctx context.Context, tx *knftables.Transaction) error {
	return n.do(ctx, tx, "--check", "-f", "-")
}

// do does not use knftables' own way to the program, which (v0.0.22) has no WaitDelay, and at first no context.
func (n *tool) do(ctx context.Context, tx *knftables.Transaction, args ...string) error {
	input := tx.String()
	if _, wrong, ok := strings.Cut(input, "# ERROR: "); ok { // knftables found an operation that is none
		return fmt.Errorf("nft: %s", strings.TrimSpace(wrong))
	}
	return n.feed(ctx, input, args...)
}

// feed gives the program its input.
func (n *tool) feed(ctx context.Context, input string, args ...string) error {
	messages, err := program.Call{Path: n.path, Args: args, Stdin: []byte(input), Bound: runLimit}.Run(ctx)
	if err == nil {
		return nil
	}
	return &nftError{
		text: "nft: " + short(cmp.Or(string(messages), err.Error())), messages: string(messages),
		cause: err,
	}
}

// maxMessage bounds the part of nft's message that is kept: it quotes its input.
const maxMessage = 200

// nftError is nft's message in one line, and as a whole.
type nftError struct {
	text, messages string
	cause          error
}

func (e *nftError) Error() string { return e.text }
func (e *nftError) Unwrap() error { return e.cause }

// short keeps of nft's message what tells the cause: the first line that says "Error", without the
// place in the input, which nobody can look at.
func short(text string) string {
	for line := range strings.Lines(text) {
		if _, message, ok := strings.Cut(line, "Error: "); ok {
			text = message
			break
		}
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return text
}

// saying gives what nft said when it refused to do something; empty for any other error.
func saying(err error) string {
	var failed *nftError
	var exit *exec.ExitError
	if !errors.As(err, &failed) || !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return ""
	}
	return failed.messages
}

// refused reports whether the content of a transaction was refused, in contrast to a failed delivery. A batch that the
// socket does not take is one of a single ServicePort with very many elements, which the caller leaves out.
func refused(err error) bool {
	var r *netlink.Refused
	if errors.As(err, &r) {
		return r.Content()
	}
	if errors.Is(err, netlink.ErrTooBig) {
		return true
	}
	return !undelivered(err) && strings.Contains(saying(err), "Error: ")
}

// undelivered reports whether the transaction of a run of nft did not reach the kernel, or the kernel had no memory for
// it.
func undelivered(err error) bool {
	said := func(what string) bool { return strings.Contains(saying(err), what) }
	return slices.ContainsFunc([]string{
		"Operation not permitted", "No buffer space", "Cannot allocate memory", "Message too long", "Out of memory",
	}, said)
}

// missing says that a transaction was refused because something does not exist.
func missing(err error) bool { return refusedWith(err, unix.ENOENT) }

// refusedWith says that the kernel gave this number, of which nft tells the name.
func refusedWith(err error, errno unix.Errno) bool {
	var r *netlink.Refused
	return errors.As(err, &r) && r.Errno == errno || strings.Contains(strings.ToLower(saying(err)), errno.Error())
}
