package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"edgeway/daemon/text"
)

// result is a command's output. Print prints the output as human-readable text, and json.Marshal encodes it as JSON.
type result interface{ Print(*text.Screen) }

// choice is a flag that accepts only a fixed set of words.
type choice struct {
	of    []string
	value string
}

func (c *choice) addTo(cmd *cobra.Command, flags *pflag.FlagSet, name, shorthand, usage string) {
	flags.VarP(c, name, shorthand, usage+": "+strings.Join(c.of, ", "))
	// RegisterFlagCompletionFunc fails only if the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.of, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return "word" }

// Set implements pflag.Value.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.of, word) {
		return fmt.Errorf("must be one of: %s", strings.Join(c.of, ", "))
	}
	c.value = word
	return nil
}

// output holds the flags that select a command's output format.
type output struct {
	choice  // the --output flag, or "" for text
	json    bool
	verbose bool
}

// outputFlag adds the --output flag to a command. The flag accepts "json" and the additional words that the caller
// passes. outputFlag also adds --json, an alias for --output=json that version 2.0 will remove.
func outputFlag(cmd *cobra.Command, others ...string) *output {
	out := &output{choice: choice{of: append([]string{"json"}, others...)}}
	out.addTo(cmd, cmd.Flags(), "output", "o", "output format")
	cmd.Flags().BoolVar(&out.json, "json", false, "print JSON")
	_ = cmd.Flags().MarkHidden("json") // MarkHidden fails only if the flag does not exist
	return out
}

// hasFormat reports whether the user selected the given output format.
func (o *output) hasFormat(form string) bool { return o.value == form || form == "json" && o.json }

// maxWidth is the maximum width of the output, in columns, except with -o wide.
const maxWidth = 80

// screen returns a Screen that prints to stdout. The Screen wraps lines only on a terminal, so other programs receive
// each message on one line.
func (g *globals) screen(out *output) *text.Screen {
	width, color := 0, g.color.value == "always"
	if f, ok := g.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, _ = term.GetSize(int(f.Fd())); !out.hasFormat("wide") {
			width = min(width, maxWidth)
		}
		color = color || g.color.value == "auto" && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	s := text.NewScreen(g.stdout, width, color)
	s.Verbose = out.verbose
	return s
}

// apiVersion is the version of the commands' JSON format. Later releases may add fields, but never remove any.
const apiVersion = "edgeway/v1"

func (g *globals) print(cmd *cobra.Command, kind string, a result, out *output) error {
	if out.hasFormat("json") {
		return printJSON(cmd, kind, a)
	}
	s := g.screen(out)
	a.Print(s)
	return s.Err()
}

// printJSON prints a value as JSON that begins with apiVersion and kind. /usr/share/edgeway/schema contains a schema
// for each kind.
func printJSON(cmd *cobra.Command, kind string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	text := bytes.NewBuffer(nil)
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, apiVersion, kind)
	if err := json.Indent(text, append([]byte(head), raw[1:]...), "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}
