package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// In mdoc(7), the Op macro applies to the rest of its line. An optional flag before other arguments must therefore be
// enclosed in Oo and Oc.
func TestManualOptionalFlagsEndBeforeArguments(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/edgeway.8")
	if err != nil {
		t.Fatal(err)
	}
	if bad := regexp.MustCompile(`.*\bOp Fl Fl \S+ (Ar|Op|Oo|Cm)\b.*`).FindAllString(string(page), -1); bad != nil {
		t.Errorf("%q", bad)
	}
}

// In Markdown, command lines are in code spans and indented blocks; in the manual pages, they follow .Ql or .Ic.
func TestDocumentsUseKnownCommandsAndFlags(t *testing.T) {
	shown := regexp.MustCompile("(?m)(?:`|^ {4,}|^\\.(?:Ql|Ic) |^[$#] )(?:sudo |[$#] |- )*edgeway ([a-z-][^`#|>;&\n]*)")
	names := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	for _, pattern := range []string{"../../packaging/doc/*.md", "../../packaging/man/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil || found == nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		names = append(names, found...)
	}
	root, _ := rootCommand(io.Discard, io.Discard)
	lines := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range shown.FindAllStringSubmatch(strings.ReplaceAll(string(text), `\-`, "-"), -1) {
			lines++
			if unknown := unknownWord(root, strings.Fields(line[1])); unknown != "" {
				t.Errorf("%s: edgeway %s: %s is unknown", name, line[1], unknown)
			}
		}
	}
	if lines < 50 {
		t.Errorf("only %d command lines found", lines)
	}
}

// unknownWord returns the first word that should be a command or a flag but is neither, or "" if there is none.
func unknownWord(cmd *cobra.Command, words []string) string {
	for _, word := range words {
		flag, isFlag := strings.CutPrefix(word, "--")
		flag, _, _ = strings.Cut(strings.TrimRight(flag, ".,)"), "=")
		switch {
		case isFlag && cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil:
			return word
		case strings.HasPrefix(word, "-") || !cmd.HasAvailableSubCommands():
			continue
		}
		sub, _, err := cmd.Find([]string{word})
		if err != nil || sub == cmd {
			return word
		}
		cmd = sub
	}
	return ""
}
