package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"edgeway/daemon"
)

func bpfCommand(g *globals) *cobra.Command {
	cmd := group("bpf", "Prepare the kernel for the backend that uses BPF")
	cmd.AddCommand(&cobra.Command{
		Use:   "load",
		Short: "Load the BPF programs and maps, and pin them; done by edgeway-bpf.service",
		Long: `Load the BPF programs and maps of the backend that uses them, and pin them in /run/edgeway_bpf.

This needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. With [ebpf] tc = true it also needs CAP_SYS_ADMIN where nf_nat is a
module of the kernel. Pinned programs and maps stay, with the content of the maps. The daemon opens them, so the folder
must belong to the daemon's user.`,
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
