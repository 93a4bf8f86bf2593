package nftables

import (
	"errors"
	"os/exec"
	"strings"
)

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
