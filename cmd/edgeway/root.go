package main

import (
	"io"

	"github.com/spf13/cobra"

	"edgeway/daemon/config"
)

// globals are the flags that every command has.
type globals struct {
	config string
	color  choice
	stdout io.Writer
	log    io.Writer // the daemon's log
}

// rootCommand makes the tree of commands. started becomes true when a command begins to run, that
// is, when the command line was valid.
func rootCommand(stdout, log io.Writer) (root *cobra.Command, started *bool) {
	g := globals{color: choice{of: []string{"auto", "always", "never"}, value: "auto"}, stdout: stdout, log: log}
	started = new(bool)
	root = group("edgeway", "Kubernetes Services on hosts that Kubernetes does not manage")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.PersistentPreRun = func(*cobra.Command, []string) { *started = true }
	// Not with a template of our own: text/template finds methods by their names, so that the linker has to keep every
	// method of every package. That is 5 MB of the program, and 3 MB resident.
	root.Version = build().String()
	root.SetFlagErrorFunc(unknownFlag)
	root.PersistentFlags().StringVar(&g.config, "config", config.DefaultPath, "the configuration `file`")
	g.color.addTo(root, root.PersistentFlags(), "color", "", "when verdicts have colours")
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

// group is a command that only holds others. Alone it shows its help; with an unknown name it is an
// invalid command line.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
