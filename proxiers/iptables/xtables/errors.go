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
	// maxMessage and maxQuote bound what is kept of a program's message and of the input it is about.
	maxMessage = 200
	maxQuote   = 120
)

var (
	// greeting begins a message: "iptables-nft-restore v1.8.9 (nf_tables): ", or only the name.
	greeting = regexp.MustCompile(`^(\S*tables\S*( v[0-9.]+ \(\w+\))?: *)+`)
	// lineNumber is in one: "Error occurred at line: 3", "line 4: RULE_INSERT failed", "line 2 failed".
	lineNumber = regexp.MustCompile(`\bline:? (\d+)`)
)

// transport are parts of messages about failures that the content is not to blame for.
var transport = []string{
	"xtables lock", "lock file", "Permission denied", "Operation not permitted", "unable to initialize table",
	"generation id", "No buffer space", "Cannot allocate memory", "Out of memory", "Message too long",
	"Resource temporarily unavailable", "Interrupted system call",
}

// failure makes one line of a program's exit code and messages, with the line of the input that is to blame.
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

// refused tells input that was refused from input that could not be delivered. Of the exit codes 1 is for what has no
// other, and iptables-legacy's when the kernel refuses a rule; 2 is for parameters, 4 for resources, and iptables-nft's
// when the kernel refuses a rule. The others mean a version or a kernel that does not fit.
func refused(exit int, messages []byte) bool {
	if slices.ContainsFunc(transport, func(t string) bool { return bytes.Contains(messages, []byte(t)) }) {
		return false
	}
	return exit == 1 || exit == 2 || exit == 4 && lineNumber.Match(messages)
}

// message is the first line that says what is wrong.
func message(text []byte) string {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(greeting.ReplaceAll(line, nil))
		// "Can't lock" is followed by a line that says more, and a warning tells of tables of the other variant.
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("Can't lock ")) && !bytes.HasPrefix(line, []byte("# ")) {
			return shorten(string(line), maxMessage)
		}
	}
	return ""
}

// blamed gives the line of the input that a message is about. A legacy kernel refuses a table as a whole: then
// it is the line with the table's name.
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
