package xtables

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers"
)

const (
	// In an error, maxMessage limits the length of the program's message, and maxQuote limits the length of the quoted
	// input.
	maxMessage = 200
	maxQuote   = 120
)

var (
	// greeting matches the prefix of a message: "iptables-nft-restore v1.8.9 (nf_tables): ", or only the program's
	// name.
	greeting = regexp.MustCompile(`^(\S*tables\S*( v[0-9.]+ \(\w+\))?: *)+`)
	// lineNumber matches the number in "Error occurred at line: 3", "line 4: RULE_INSERT failed" and "line 2 failed".
	lineNumber = regexp.MustCompile(`\bline:? (\d+)`)
)

// transport holds phrases from error messages whose cause is not the content of the input.
var transport = []string{
	"xtables lock", "lock file", "Permission denied", "Operation not permitted", "unable to initialize table",
	"generation id", "No buffer space", "Cannot allocate memory", "Out of memory", "Message too long",
	"Resource temporarily unavailable", "Interrupted system call",
}

// failure returns a one-line error with the program's exit code, its messages, and the line of the input that failed.
func (c call) failure(err error, exit int, messages []byte) error {
	if text := message(messages); text != "" {
		err = fmt.Errorf("%s (%w)", text, err)
	}
	err = fmt.Errorf("%s: %w", filepath.Base(c.Path), err)
	if quote := blamed(messages, c.Stdin); quote != "" {
		err = fmt.Errorf("%w, input %q", err, quote)
	}
	if c.Stdin != nil && refused(exit, messages) {
		return fmt.Errorf("%w: %w", proxiers.ErrRefused, err)
	}
	return err
}

// refused reports whether the program or the kernel rejected the content of the input. Exit code 1 is a general error,
// or a rule of iptables-legacy that the kernel rejects. Exit code 2 is a wrong parameter. Exit code 4 is a lack of
// resources, or a rule of iptables-nft that the kernel rejects. Other codes mean an unsuitable version or kernel.
func refused(exit int, messages []byte) bool {
	if slices.ContainsFunc(transport, func(t string) bool { return bytes.Contains(messages, []byte(t)) }) {
		return false
	}
	return exit == 1 || exit == 2 || exit == 4 && lineNumber.Match(messages)
}

func message(text []byte) string {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(greeting.ReplaceAll(line, nil))
		// A line that begins with "Can't lock" precedes a line with more details. A line that begins with "# " is a
		// warning about the tables of the other variant.
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("Can't lock ")) && !bytes.HasPrefix(line, []byte("# ")) {
			return shorten(string(line), maxMessage)
		}
	}
	return ""
}

// blamed returns the line of the input to which a message refers. With iptables-legacy, the kernel rejects a whole
// table, and blamed returns the line with the table's name.
func blamed(text, input []byte) string {
	m := lineNumber.FindSubmatch(text)
	if m == nil {
		return ""
	}
	n, _ := strconv.Atoi(string(m[1]))
	table, i := "", 0
	for line := range bytes.Lines(input) {
		line := strings.TrimSpace(string(line))
		if i++; i > n {
			break
		}
		if strings.HasPrefix(line, "*") {
			table = line
		}
		if i == n && line != "COMMIT" {
			return shorten(line, maxQuote)
		}
	}
	return shorten(table, maxQuote)
}

func shorten(s string, limit int) string {
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
