package main

import (
	"context"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor/connect"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func explainCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain source destination[/protocol]",
		Short: "Show what happens to a new connection and why, and how to fix any problem",
		Long: `Show what happens to a new connection and why, and how to fix any problem.

The source is an ` +
			`address, or "host" for this host. For "host", the kernel chooses the route and the source address. ` +
			`If
Edgeway detects pods by their interface, an interface can follow the address, as in ` +
			`10.244.0.5@cni0.

The destination is an address and a port, localhost and a port, or the name of a ` +
			`Service. A Service's name needs the
namespace if several namespaces have a Service with that name, ` +
			`and a port, as a number or a name, if the Service has
several ports. An address needs no port if ` +
			`its Services have only one port. If a Service has several addresses, the
command uses the address ` +
			`that the client would use. The protocol is tcp (the default), udp or sctp.

If the rules forward a ` +
			`TCP connection, the command connects to the destination and, if the source is not this host, ` +
			`to
the endpoints. The command closes these connections immediately.`,
		Example: "  edgeway explain 198.51.100.7 203.0.113.10:443\n  edgeway explain host kube-system/kube-dns:53/udp\n  edgeway explain host localhost:30080",
		Args:    between(2, 2),
	}
	out := outputFlag(cmd)
	exitCode := cmd.Flags().Bool("exit-code", false,
		"exit with code 4 if the kernel does not forward the connection to an endpoint")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string,
		typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []cobra.Completion{"host"}, cobra.ShellCompDirectiveNoFileComp
		}
		return g.completeService(1)(cmd, args, typed)
	}
	cmd.RunE = g.withClient(func(ctx context.Context, cmd *cobra.Command, c *control.Client, args []string) error {
		explanation, err := c.Explain(ctx, args[0], args[1], "")
		if err != nil {
			return err
		}
		tryConnection(ctx, &explanation)
		if err := g.print(cmd, "Explanation", explanation, out); err != nil {
			return err
		}
		if *exitCode && !explanation.IsForwarded() {
			return codedError{errQuiet, exitUnhealthy}
		}
		return nil
	})
	return cmd
}

// connectAny connects to the addresses and returns "" if a server responds, or else a description of one failure. Tests
// replace this function.
var connectAny = connect.ConnectAny

// maxEndpoints is the maximum number of endpoints that explain connects to.
const maxEndpoints = 16

// tryConnection connects to the destination and, if the client is not this host, also to the endpoints. If no server
// responds, tryConnection changes the verdict to "fail".
func tryConnection(ctx context.Context, e *control.Explanation) {
	if !e.IsForwarded() || e.Protocol != plan.TCP.String() {
		return
	}
	to := []string{e.Destination}
	if e.Origin != plan.FromHost.String() {
		for _, ep := range e.Endpoints[:min(len(e.Endpoints), maxEndpoints)] {
			to = append(to, ep.Address)
		}
	}
	var all []netip.AddrPort
	for _, text := range to {
		if at, err := netip.ParseAddrPort(text); err == nil {
			all = append(all, at)
		}
	}
	if why := connectAny(ctx, all); why != "" {
		// e.Service is "namespace/name:port/protocol", or "namespace/name/protocol" if the port has no name.
		namespace, rest, _ := strings.Cut(e.Service, "/")
		name := rest[:max(0, strings.IndexAny(rest, ":/"))]
		e.AddFault(fault.New(connect.FaultID, fault.Problem, "edgeway doctor --connect "+namespace+"/"+name+" --trace",
			"a connection from this host fails: %s", why))
	}
}
