package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"edgeway/daemon/text"
)

// addHint adds a hint to an error about an unknown word: the most similar known word or, if there is none, the command
// that lists the known words.
func addHint(fault error, word string, known []string, cmd *cobra.Command) error {
	for _, k := range known {
		if strings.HasPrefix(k, word) {
			return fmt.Errorf("%w: did you mean %q?", fault, k)
		}
	}
	if best, near := text.Suggest(word, known); near {
		return fmt.Errorf("%w: did you mean %q?", fault, best)
	}
	return fmt.Errorf("%w: see %q", fault, cmd.CommandPath()+" --help")
}

// rejectArguments rejects all arguments, because an argument to a command group is an unknown subcommand.
func rejectArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return addHint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), args[0], known, cmd)
}

// addFlagHint adds a hint to an error about an unknown flag, and returns other errors unchanged.
func addFlagHint(cmd *cobra.Command, fault error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](fault)
	if !ok {
		return fault
	}
	word := unknown.GetSpecifiedShortnames() // "json" if the user typed -json
	if word == "" {
		word = unknown.GetSpecifiedName()
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return addHint(fault, "--"+word, known, cmd)
}

func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		fault := "too many"
		switch {
		case len(args) < least:
			fault = "too few"
		case len(args) <= most:
			return nil
		}
		return fmt.Errorf("%s arguments; usage: %q", fault, cmd.Parent().CommandPath()+" "+cmd.Use)
	}
}
