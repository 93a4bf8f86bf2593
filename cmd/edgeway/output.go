package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// answer is the result of a command. It is printed as text for people, or as JSON for programs.
type answer interface {
	WriteText(w io.Writer) error
}

// output is the value of the flag --output: the form in which a command prints its answer.
type output struct {
	forms []string
	form  string // "" for text
	json  bool   // --json
}

// outputFlag adds the flag --output to a command, with the form json and the other forms. It also adds --json, an alias
// that stays until 2.0.
func outputFlag(cmd *cobra.Command, others ...string) *output {
	out := &output{forms: append([]string{"json"}, others...)}
	cmd.Flags().VarP(out, "output", "o", "output form: "+strings.Join(out.forms, ", "))
	cmd.Flags().BoolVar(&out.json, "json", false, "print JSON")
	_ = cmd.Flags().MarkHidden("json") // fails only if there is no such flag
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(out.forms, cobra.ShellCompDirectiveNoFileComp))
	return out
}

// String implements pflag.Value.
func (o *output) String() string { return o.form }

// Type implements pflag.Value.
func (o *output) Type() string { return "form" }

// Set implements pflag.Value.
func (o *output) Set(form string) error {
	if !slices.Contains(o.forms, form) {
		return fmt.Errorf("must be one of: %s", strings.Join(o.forms, ", "))
	}
	o.form = form
	return nil
}

// is reports whether the answer must have the form.
func (o *output) is(form string) bool { return o.form == form || form == "json" && o.json }

// apiVersion is the version of the JSON of all commands. A version only ever gains fields.
const apiVersion = "edgeway/v1"

// printAnswer prints an answer. Its JSON begins with apiVersion and kind; the package has a schema for each kind.
func printAnswer(cmd *cobra.Command, kind string, a answer, out *output) error {
	if !out.is("json") {
		return a.WriteText(cmd.OutOrStdout())
	}
	raw, err := json.Marshal(a)
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
