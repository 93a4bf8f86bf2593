package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"edgeway/proxiers"
)

const (
	// maxMessage and maxQuote bound what is kept of a program's message and of the input it is about.
	maxMessage = 200
	maxQuote   = 120
)

// Exit codes of the programs that say why they failed. The others mean a version or a kernel that does not fit.
const (
	exitOther    = 1
	exitParam    = 2
	exitResource = 4
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

// runError makes one line of a program's failure.
func runError(ctx context.Context, cmd *exec.Cmd, err error) error {
	name := filepath.Base(cmd.Path)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", name, ctx.Err())
	}
	if text := message(stderr(err)); text != "" {
		return fmt.Errorf("%s: %s (%w)", name, text, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// restoreError also tells whether the input is to blame, and quotes its line.
func restoreError(ctx context.Context, cmd *exec.Cmd, err error, input []byte) error {
	out := runError(ctx, cmd, err)
	if ctx.Err() != nil {
		return out
	}
	if quote := blamed(stderr(err), input); quote != "" {
		out = fmt.Errorf("%w, input %q", out, quote)
	}
	if refused(err) {
		return fmt.Errorf("%w: %w", proxiers.ErrRefused, out)
	}
	return out
}

// refused tells input that was refused from input that could not be delivered. iptables-nft ends with
// exitResource whenever the kernel refuses a rule, iptables-legacy with exitOther.
func refused(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	for _, t := range transport {
		if bytes.Contains(exit.Stderr, []byte(t)) {
			return false
		}
	}
	switch exit.ExitCode() {
	case exitOther, exitParam:
		return true
	case exitResource:
		return lineNumber.Match(exit.Stderr)
	}
	return false
}

func stderr(err error) []byte {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.Stderr
	}
	return nil
}

// message is the first line that says what is wrong.
func message(text []byte) string {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(greeting.ReplaceAllString(line, ""))
		// "Can't lock" is followed by a line that says more, and a warning tells of tables of the other variant.
		if line == "" || strings.HasPrefix(line, "Can't lock ") || strings.HasPrefix(line, "# ") {
			continue
		}
		return shorten(line, maxMessage)
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
		line = bytes.TrimSpace(line)
		if i++; i > n {
			break
		}
		if bytes.HasPrefix(line, []byte("*")) {
			table = string(line)
		}
		if i == n && !bytes.Equal(line, []byte("COMMIT")) {
			return shorten(string(line), maxQuote)
		}
	}
	return table
}

func shorten(s string, limit int) string {
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
