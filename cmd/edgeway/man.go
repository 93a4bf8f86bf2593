package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand makes the manuals of the subcommands for the packages from the commands themselves.
// edgeway(8), which describes all of them, is written by hand.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man folder",
		Short:  "Write the manual of each command into a folder",
		Hidden: true,
		Args:   between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			date := time.Now()
			if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
				date = time.Unix(epoch, 0)
			}
			for _, sub := range cmd.Root().Commands() {
				if !sub.IsAvailableCommand() || sub.Name() == "help" {
					continue
				}
				name := filepath.Join(args[0], "edgeway-"+sub.Name()+".8")
				if err := os.WriteFile(name, []byte(manual(sub, date.UTC())), 0o644); err != nil {
					return fmt.Errorf("manual: %w", err)
				}
			}
			return nil
		},
	}
}

// manual is the page of a command and its subcommands, in mdoc(7).
func manual(cmd *cobra.Command, date time.Time) string {
	var page strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&page, format+"\n", args...) }
	p(".Dd %s", date.Format("January 2, 2006"))
	p(".Dt EDGEWAY-%s 8\n.Os", strings.ToUpper(cmd.Name()))
	p(".Sh NAME\n.Nm edgeway-%s\n.Nd %s", cmd.Name(), onMacroLine(lowerFirst(cmd.Short)))
	p(".Sh SYNOPSIS")
	for _, c := range ends(cmd) {
		p(".Nm edgeway\n.Cm %s", strings.TrimPrefix(c.CommandPath(), "edgeway "))
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { p(".Op %s", flagName(f)) })
		if _, args, ok := strings.Cut(c.Use, " "); ok {
			p(".Ar %s", onMacroLine(args))
		}
	}
	p(".Sh DESCRIPTION\n%s", paragraphs(about(cmd)))
	for _, c := range ends(cmd) {
		if c != cmd {
			p(".Ss edgeway %s %s\n%s", cmd.Name(), c.Name(), paragraphs(about(c)))
		}
	}
	p(".Sh OPTIONS\n.Bl -tag -width Ds")
	options := pflag.NewFlagSet("", pflag.ContinueOnError) // has each once
	for _, c := range ends(cmd) {
		options.AddFlagSet(c.NonInheritedFlags())
	}
	options.AddFlagSet(cmd.InheritedFlags())
	options.VisitAll(func(f *pflag.Flag) {
		_, usage := pflag.UnquoteUsage(f)
		p(".It %s\n%s.", flagName(f), text(upperFirst(usage)))
	})
	p(".El\n.Sh EXIT STATUS\nAs\n.Xr edgeway 8\nsays.")
	if cmd.HasExample() {
		p(".Sh EXAMPLES\n.Bd -literal -offset indent\n%s\n.Ed", text(strings.ReplaceAll(cmd.Example, "\n  ", "\n")[2:]))
	}
	p(".Sh SEE ALSO\n.Xr edgeway.toml 5 ,\n.Xr edgeway 8")
	return page.String()
}

// ends are the commands that do something: cmd, or those below it.
func ends(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasAvailableSubCommands() {
		return []*cobra.Command{cmd}
	}
	return cmd.Commands()
}

// about leaves out cobra's (1.10) long texts about each shell, which are about other systems too.
func about(cmd *cobra.Command) string {
	if cmd.Long != "" && cmd.Parent().Name() != "completion" {
		return strings.TrimSpace(cmd.Long)
	}
	return cmd.Short + "."
}

// flagName is "Fl Fl config Ar file"; the second part where the flag has a value.
func flagName(f *pflag.Flag) string {
	name := "Fl Fl " + f.Name
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		name += " Ar " + value
	}
	return name
}

// sentence is where one ends and another begins; roff wants each on a line of its own.
var sentence = regexp.MustCompile(`([.:])\s+([A-Z])`)

// paragraphs are separated by empty lines.
func paragraphs(s string) string {
	var out []string
	for part := range strings.SplitSeq(s, "\n\n") {
		out = append(out, sentence.ReplaceAllString(text(part), "$1\n$2"))
	}
	return strings.Join(out, "\n.Pp\n")
}

// text escapes what roff would interpret.
func text(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, "`", `\(ga`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// macro matches words that mdoc would take for macros on a line that begins with one.
var macro = regexp.MustCompile(`\b[A-Z][a-z]{1,2}\b`)

func onMacroLine(s string) string { return macro.ReplaceAllString(text(s), `\&$0`) }

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
