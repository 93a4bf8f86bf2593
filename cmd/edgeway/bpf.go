package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"edgeway/daemon"
)

func bpfCommand(g *globals) *cobra.Command {
	cmd := group("bpf", "Prepare the kernel for the ebpf backend")
	cmd.AddCommand(&cobra.Command{
		Use:   "load",
		Short: "Load and pin the BPF programs and maps, as edgeway-bpf.service does",
		Long: "Load the BPF programs and maps of the ebpf backend, and pin them in " +
			"/run/edgeway_bpf.\n\nThe command needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. With [ebpf] tc = " +
			"true, the command also needs CAP_SYS_ADMIN if\nnf_nat is a kernel module. The command keeps pinned " +
			"programs and maps, and the contents of the maps.\n/run/edgeway_bpf must belong to the " +
			"daemon's user, because the daemon opens the pinned programs and maps.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := daemon.LoadConfig(g.config)
			if err != nil {
				return err
			}
			return daemon.LoadBPF(cfg, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	})
	return cmd
}
