package main

import (
	"io"

	"github.com/spf13/cobra"

	"edgeway/daemon/config"
)

// globals holds the flags that all commands share.
type globals struct {
	config string
	color  choice
	stdout io.Writer
	log    io.Writer
}

// rootCommand returns the command tree. *started becomes true when a command starts, and stays false if the command
// line is invalid.
func rootCommand(stdout, log io.Writer) (root *cobra.Command, started *bool) {
	g := globals{color: choice{of: []string{"auto", "always", "never"}, value: "auto"}, stdout: stdout, log: log}
	started = new(bool)
	root = group("edgeway", "Kubernetes Services on hosts that Kubernetes does not manage")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.PersistentPreRun = func(*cobra.Command, []string) { *started = true }
	// A custom version template would need text/template, which looks up methods by name. The linker would then keep
	// every method of every package. The extra methods would add 5 MB to the binary and 3 MB to the resident memory.
	root.Version = build().String()
	root.SetFlagErrorFunc(addFlagHint)
	root.PersistentFlags().StringVar(&g.config, "config", config.DefaultPath, "the configuration `file`")
	g.color.addTo(root, root.PersistentFlags(), "color", "", "when to color verdicts")
	root.AddCommand(
		runCommand(&g),
		configCommand(&g),
		statusCommand(&g),
		servicesCommand(&g),
		planCommand(&g),
		explainCommand(&g),
		doctorCommand(&g),
		bugReportCommand(&g),
		reloadCommand(&g),
		probeCommand(&g),
		cleanupCommand(&g),
		bpfCommand(&g),
		versionCommand(&g),
	)
	return root, started
}

// group returns a command that has only subcommands. Without arguments, the command prints its help. The command
// rejects unknown subcommands.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  rejectArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
