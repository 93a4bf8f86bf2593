package xtables

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"edgeway/proxiers"
)

// maxMessage is the maximum length, in bytes, of a program's message in an error.
const maxMessage = 200

var (
	// messagePrefix matches the prefix of a message: "iptables-nft-restore v1.8.9 (nf_tables): ", or only the program's
	// name.
	messagePrefix = regexp.MustCompile(`^(\S*tables\S*( v[0-9.]+ \(\w+\))?: *)+`)
	// lineNumber matches the end of "Error occurred at line: 3", and "line 4" in "line 4: RULE_INSERT failed".
	lineNumber = regexp.MustCompile(`\bline:? \d`)
)

// transportErrors holds phrases from messages about errors that the input's content did not cause.
var transportErrors = []string{
	"xtables lock", "lock file", "Permission denied", "Operation not permitted", "unable to initialize table",
	"generation id", "No buffer space", "Cannot allocate memory", "Out of memory", "Message too long",
	"Resource temporarily unavailable", "Interrupted system call",
}

// failure returns a one-line error with the program's exit code and its message.
func (c call) failure(err error, exit int, messages []byte) error {
	if text := message(messages); text != "" {
		err = fmt.Errorf("%s (%w)", text, err)
	}
	err = fmt.Errorf("%s: %w", filepath.Base(c.Path), err)
	if c.Stdin != nil && isContentError(exit, messages) {
		return fmt.Errorf("%w: %w", proxiers.ErrRefused, err)
	}
	return err
}

// isContentError reports whether the program or the kernel rejected the input's content. Exit code 1 means a general
// error, or an iptables-legacy rule that the kernel rejects. Exit code 2 means an invalid parameter. Exit code 4 means
// a lack of resources, or an iptables-nft rule that the kernel rejects. Other exit codes mean that the program's
// version or the kernel is unsuitable.
func isContentError(exit int, messages []byte) bool {
	if slices.ContainsFunc(transportErrors, func(t string) bool { return bytes.Contains(messages, []byte(t)) }) {
		return false
	}
	return exit == 1 || exit == 2 || exit == 4 && lineNumber.Match(messages)
}

func message(text []byte) string {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(messagePrefix.ReplaceAll(line, nil))
		// A line that begins with "Can't lock" precedes a line with more details. A line that begins with "# " is a
		// warning about the other variant's tables.
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("Can't lock ")) && !bytes.HasPrefix(line, []byte("# ")) {
			return shorten(string(line))
		}
	}
	return ""
}

func shorten(s string) string {
	if len(s) > maxMessage {
		return s[:maxMessage] + "…"
	}
	return s
}
