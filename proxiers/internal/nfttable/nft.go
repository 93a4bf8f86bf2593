package nfttable

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
)

// openLimit bounds the start of nft, which does next to nothing then: it takes seconds where the machine is busy.
const openLimit = time.Minute

// openNFT looks for the nft program and tries it.
func openNFT(ctx context.Context) (knftables.Interface, error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	nft, err := newNFT(ctx)
	switch {
	case err == nil:
		return nft, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("nft does not answer: %w", ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%w: the nft program is missing: install the package nftables (1.0.1 or newer)", proxiers.ErrUnsupported)
	case strings.Contains(err.Error(), "nft version must be"):
		return nil, fmt.Errorf("%w: %w: upgrade the package nftables", proxiers.ErrUnsupported, err)
	case strings.Contains(err.Error(), "Operation not permitted"):
		return nil, fmt.Errorf("nft may not change rules (it needs CAP_NET_ADMIN): %w", short(err))
	}
	return nil, fmt.Errorf("%w: %w", proxiers.ErrUnsupported, short(err))
}

// newNFT is knftables.New with a context: that one (v0.0.22) runs nft without. An nft that hangs is left behind
// when the context ends.
func newNFT(ctx context.Context) (knftables.Interface, error) {
	var nft knftables.Interface
	done := make(chan error, 1)
	go func() {
		var err error
		nft, err = knftables.New("", "")
		done <- err
	}()
	select {
	case err := <-done:
		return nft, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run gives a transaction to nft: to be run or to be checked.
func run(ctx context.Context, do func(context.Context, *knftables.Transaction) error, tx *knftables.Transaction) error {
	err := do(ctx, tx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("nft: %w", ctx.Err())
	}
	return short(err)
}

// maxMessage bounds the part of nft's message that is kept: it quotes its input.
const maxMessage = 200

// nftError is nft's message in one line.
type nftError struct {
	text  string
	cause error
}

func (e *nftError) Error() string { return e.text }
func (e *nftError) Unwrap() error { return e.cause }

// short keeps of an error of nft what tells the cause: the first line that says "Error", without the
// place in the input, which nobody can look at.
func short(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
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
	return &nftError{"nft: " + text, err}
}

// refused tells a transaction whose content was refused from one that could not be delivered.
func refused(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return false
	}
	text := string(exit.Stderr)
	for _, transport := range []string{"Operation not permitted", "No buffer space", "Cannot allocate memory", "Message too long", "Out of memory"} {
		if strings.Contains(text, transport) {
			return false
		}
	}
	return strings.Contains(text, "Error: ")
}
