package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// lab is the network namespace of a run.
type lab struct{ netns string }

// endpointAddr is where connections are relayed to. No address of 127.0.0.0/8: those can be no endpoints.
var endpointAddr = netip.MustParseAddrPort("10.128.0.1:7000")

func labName() string { return fmt.Sprintf("ewloop%d", os.Getpid()) }

func newLab(ctx context.Context, name string) (*lab, error) {
	l := &lab{netns: name}
	err := kit.IP(ctx,
		"netns add "+name,
		"-n "+name+" link set lo up",
		"-n "+name+" addr add "+endpointAddr.Addr().String()+"/32 dev lo")
	if err == nil {
		err = l.sysctl(ctx,
			// Closed connections leave nothing behind: else all ports would be taken within seconds,
			// and each program would find what its predecessor left.
			"net.ipv4.tcp_max_tw_buckets=0",
			"net.ipv4.tcp_max_syn_backlog=4096")
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() {
	// The run's own context may be over.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = kit.IP(ctx, "netns del "+l.netns)
}

// do calls f on a thread inside of the namespace.
func (l *lab) do(f func() error) error { return cluster.InNetns(l.netns, f) }

// command is one that runs inside of the namespace: ip becomes it, so that it is the same process.
func (l *lab) command(argv ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", l.netns}, argv...)...)
}

func (l *lab) sysctl(ctx context.Context, settings ...string) error {
	return kit.Run(ctx, "ip", append([]string{"netns", "exec", l.netns, "sysctl", "-q", "-w"}, settings...)...)
}
