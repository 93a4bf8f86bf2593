package nfttable

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
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
	// versionTimeout is the timeout for "nft --version", which may take seconds on a busy machine.
	versionTimeout = time.Minute
	// runLimit is the timeout for a transaction of any size.
	runLimit = 10 * time.Minute
)

// Program runs nft. Edgeway uses knftables only to render transactions, because knftables (v0.0.22) runs nft without a
// WaitDelay and, the first time, without a context.
type Program struct{ path string }

// FindProgram searches PATH for nft.
func FindProgram() (*Program, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("%w: the nft program is missing: install the nftables package, version 1.0.6 or newer",
			proxiers.ErrUnsupported)
	}
	return &Program{path}, nil
}

// tooOld matches the versions of nft that reject Edgeway's rules. nft 1.0.3 to 1.0.5 are untested. If nft rejects a
// rule, Probe returns nft's message.
var tooOld = regexp.MustCompile(`^nftables v(0\.|1\.0\.[0-2] )`)

// requireVersion returns an error if nft fails, or if Edgeway does not support nft's version.
func (p *Program) requireVersion(ctx context.Context) error {
	var version bytes.Buffer
	_, err := program.Call{
		Path: p.path, Args: []string{"--version"}, Stdout: &version, Timeout: versionTimeout,
	}.Run(ctx)
	switch text := strings.TrimSpace(version.String()); {
	case program.Transient(err):
		return fmt.Errorf("nft does not respond: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
	case tooOld.MatchString(text):
		return fmt.Errorf("%w: %s is too old: upgrade the nftables package to 1.0.6 or newer, or set another "+
			"proxy.backend", proxiers.ErrUnsupported, text)
	}
	return nil
}

func newTransaction() *knftables.Transaction { return knftables.NewFake("", "").NewTransaction() }

// commands returns a transaction's nft commands.
func commands(tx *knftables.Transaction) (string, error) {
	text := tx.String()
	if _, wrong, ok := strings.Cut(text, "# ERROR: "); ok { // knftables found an invalid operation
		return "", fmt.Errorf("nft: %s", strings.TrimSpace(wrong))
	}
	return text, nil
}

func (p *Program) run(ctx context.Context, tx *knftables.Transaction) error {
	text, err := commands(tx)
	if err != nil {
		return err
	}
	return p.Run(ctx, text)
}

// Run executes the commands as one transaction.
func (p *Program) Run(ctx context.Context, commands string) error {
	return p.runWithInput(ctx, commands, "-f", "-")
}

// Validate has nft and the kernel validate the commands without executing them. Validate returns the same errors as
// Probe.
func (p *Program) Validate(ctx context.Context, commands string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := p.requireVersion(ctx); err != nil {
		return err
	}
	return wrapProbeError(p.runWithInput(ctx, commands, "--check", "-f", "-"))
}

// runWithInput runs nft with the given standard input.
func (p *Program) runWithInput(ctx context.Context, input string, args ...string) error {
	messages, err := program.Call{Path: p.path, Args: args, Stdin: []byte(input), Timeout: runLimit}.Run(ctx)
	if err == nil {
		return nil
	}
	return &nftError{
		text: "nft: " + excerpt(cmp.Or(string(messages), err.Error())), messages: string(messages),
		cause: err,
	}
}

// maxMessage is the maximum length of nft's message in an error, in bytes. nft quotes its input, which may be long.
const maxMessage = 200

// nftError holds nft's whole message and a one-line excerpt.
type nftError struct {
	text, messages string
	cause          error
}

func (e *nftError) Error() string { return e.text }
func (e *nftError) Unwrap() error { return e.cause }

// excerpt returns the text after "Error: " in the first line of nft's message that contains "Error: ". The excerpt
// omits the position in the input, because the operator does not see the input.
func excerpt(text string) string {
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

// rejectionMessage returns nft's message if nft rejected the input, or "" for any other error.
func rejectionMessage(err error) string {
	var failed *nftError
	var exit *exec.ExitError
	if !errors.As(err, &failed) || !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return ""
	}
	return failed.messages
}

// isContentError reports whether a transaction's content caused an error. The result is also true for a batch that is
// too big for the socket. An oversized batch contains a single ServicePort with very many elements, and the caller
// leaves out that ServicePort.
func isContentError(err error) bool {
	var r *netlink.RejectionError
	if errors.As(err, &r) {
		return r.IsPermanent()
	}
	if errors.Is(err, netlink.ErrTooBig) {
		return true
	}
	return !isDeliveryError(err) && strings.Contains(rejectionMessage(err), "Error: ")
}

// isDeliveryError reports whether nft failed to send a transaction to the kernel, or the kernel ran out of memory for
// the transaction.
func isDeliveryError(err error) bool {
	said := func(what string) bool { return strings.Contains(rejectionMessage(err), what) }
	return slices.ContainsFunc([]string{
		"Operation not permitted", "No buffer space", "Cannot allocate memory", "Message too long", "Out of memory",
	}, said)
}

// HasErrno reports whether errno is the error number with which the kernel rejected commands or a batch. nft reports
// the error number as text.
func HasErrno(err error, errno unix.Errno) bool {
	var r *netlink.RejectionError
	return errors.As(err, &r) && r.Errno == errno ||
		strings.Contains(strings.ToLower(rejectionMessage(err)), errno.Error())
}
