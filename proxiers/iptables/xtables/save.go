package xtables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Line is a line in iptables-save's output: a chain or a rule.
type Line struct {
	Chain string
	// IsRule reports whether the line is a rule. Rule is the text after "-A CHAIN ".
	IsRule bool
	Rule   string
}

// Save reads one table, and calls visit for all chains and then for all rules. Save treats a missing table as empty.
// Save does not run iptables-save for a missing table, because iptables-save creates missing iptables-legacy tables. If
// this process may not list the tables, Save assumes that the table exists.
func (t *Tools) Save(ctx context.Context, table string, visit func(Line)) error {
	names, err := Tables(t.Variant, t.Family)
	if !errors.Is(err, fs.ErrPermission) && (err != nil || !slices.Contains(names, table)) {
		return err
	}
	r := &saveReader{visit: visit}
	if err := (call{
		Path: t.programs.save, Args: []string{"-t", table}, Stdout: r,
		Timeout: tableBound,
	}).run(ctx); err != nil {
		return err
	}
	if r.err != nil {
		return fmt.Errorf("output of %s: %w", t.programs.save, r.err)
	}
	return nil
}

// saveReader parses the output of iptables-save incrementally, because the output may be long.
type saveReader struct {
	visit func(Line)
	// partialLine is the incomplete last line of the output received so far.
	partialLine []byte
	err         error
}

// maxLine is the maximum length, in bytes, of a line in iptables-save's output. The longest possible rule is many times
// shorter.
const maxLine = 1 << 16

// Write never returns an error, so that iptables-save runs to completion and reports its own errors.
func (r *saveReader) Write(output []byte) (int, error) {
	r.partialLine = append(r.partialLine, output...)
	for r.err == nil {
		line, rest, whole := bytes.Cut(r.partialLine, []byte("\n"))
		if len(line) > maxLine {
			r.err = errors.New("a line is too long")
		} else if !whole {
			return len(output), nil
		} else {
			r.line(string(line))
		}
		r.partialLine = rest
	}
	r.partialLine = nil
	return len(output), nil
}

// line parses a line of the form ":CHAIN POLICY [0:0]" or "-A CHAIN rule".
func (r *saveReader) line(line string) {
	if text, ok := strings.CutPrefix(line, "-A "); ok {
		chain, rule, _ := strings.Cut(text, " ")
		r.visit(Line{Chain: chain, IsRule: true, Rule: rule})
	} else if text, ok := strings.CutPrefix(line, ":"); ok {
		chain, _, _ := strings.Cut(text, " ")
		r.visit(Line{Chain: chain})
	}
}

// verdicts holds the targets that are neither chains nor extensions.
var verdicts = map[string]bool{"ACCEPT": true, "DROP": true, "RETURN": true, "QUEUE": true}

// Target returns the name of a rule's target, which is a chain or an extension, or "" if the target is a verdict.
func Target(rule string) string {
	i := max(strings.LastIndex(" "+rule, " -j "), strings.LastIndex(" "+rule, " -g "))
	if i < 0 {
		return ""
	}
	to, _, _ := strings.Cut(rule[i+len("-j "):], " ")
	if verdicts[to] {
		return ""
	}
	return to
}
