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
	// openLimit is the timeout of "nft --version", which may take seconds on a busy machine.
	openLimit = time.Minute
	// runLimit is the timeout of a transaction, which may have any size.
	runLimit = 10 * time.Minute
)

// tool runs nft. knftables renders the transaction that is the input of nft.
type tool struct{ path string }

func findNFT() (*tool, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("%w: the nft program is missing: install the package nftables, 1.0.6 or newer",
			proxiers.ErrUnsupported)
	}
	return &tool{path}, nil
}

// checkVersion returns an error if nft fails, or if Edgeway does not support the version of nft.
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

func newTransaction() *knftables.Transaction { return knftables.NewFake("", "").NewTransaction() }

func (n *tool) run(ctx context.Context, tx *knftables.Transaction) error {
	return n.do(ctx, tx, "-f", "-")
}

// check makes nft and the kernel validate a transaction without executing it.
func (n *tool) check(ctx context.Context, tx *knftables.Transaction) error {
	return n.do(ctx, tx, "--check", "-f", "-")
}

// do does not run nft through knftables, because knftables (v0.0.22) sets no WaitDelay and does not use the context for
// its first run.
func (n *tool) do(ctx context.Context, tx *knftables.Transaction, args ...string) error {
	input := tx.String()
	if _, wrong, ok := strings.Cut(input, "# ERROR: "); ok { // knftables found an invalid operation
		return fmt.Errorf("nft: %s", strings.TrimSpace(wrong))
	}
	return n.feed(ctx, input, args...)
}

// feed runs nft with the given input.
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

// maxMessage is the length to which nft's message is truncated, because nft quotes its input.
const maxMessage = 200

// nftError holds nft's whole message, and an excerpt of one line.
type nftError struct {
	text, messages string
	cause          error
}

func (e *nftError) Error() string { return e.text }
func (e *nftError) Unwrap() error { return e.cause }

// short returns the text after "Error: " in the first line of nft's message that contains "Error: ". The position in
// the input is omitted, because the operator does not see the input.
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

// saying returns the message with which nft rejected the input, or "" for any other error.
func saying(err error) string {
	var failed *nftError
	var exit *exec.ExitError
	if !errors.As(err, &failed) || !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return ""
	}
	return failed.messages
}

// refused reports whether the content of a transaction is the cause of an error. The result is also true for a batch
// that is too big for the socket: the batch contains a single ServicePort with very many elements, which the caller
// leaves out.
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

// undelivered reports whether nft failed to send a transaction to the kernel, or the kernel had no memory for the
// transaction.
func undelivered(err error) bool {
	said := func(what string) bool { return strings.Contains(saying(err), what) }
	return slices.ContainsFunc([]string{
		"Operation not permitted", "No buffer space", "Cannot allocate memory", "Message too long", "Out of memory",
	}, said)
}

// missing reports whether the kernel rejected a transaction because an object does not exist.
func missing(err error) bool { return refusedWith(err, unix.ENOENT) }

// refusedWith reports whether the kernel rejected a transaction with the error number. nft reports the error number as
// text.
func refusedWith(err error, errno unix.Errno) bool {
	var r *netlink.Refused
	return errors.As(err, &r) && r.Errno == errno || strings.Contains(strings.ToLower(saying(err)), errno.Error())
}
