//go:build man

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// main writes a manual page for each command to the directory given as the program's argument. scripts/build-packages
// runs this program.
func main() {
	root, _ := rootCommand(io.Discard, io.Discard)
	withoutTag(root)
	err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{
		Path:             os.Args[1],
		CommandSeparator: "-",
		Header:           &doc.GenManHeader{Section: "8", Source: "Edgeway", Manual: "System Manager's Manual"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// withoutTag disables cobra's automatic HISTORY section, which names the generator.
func withoutTag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, sub := range cmd.Commands() {
		withoutTag(sub)
	}
}
