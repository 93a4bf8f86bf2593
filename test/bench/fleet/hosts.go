package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/source/kube"
	"edgeway/test/bench/kit"
)

// hostsCommand makes this program the hosts: with their number, the folder of their kubeconfigs and a label selector.
const hostsCommand = "be-the-hosts"

// userAgent begins that of every host.
const userAgent = "edgeway-fleet/"

// ramp is the time in which the hosts start, one after the other.
const ramp = 10 * time.Second

// hostsUser is who the hosts are. Each watches its kubeconfig, and Linux has 128 instances of inotify for each user: as
// root they would leave none to anybody else on this machine. Those of the hosts that get none poll.
const hostsUser = 65534

// maybeHosts is the hosts, when this process was started as that.
func maybeHosts() {
	if len(os.Args) != 5 || os.Args[1] != hostsCommand {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	n, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = syscall.Setuid(hostsUser)
	}
	if err == nil {
		err = runHosts(ctx, n, os.Args[3], kube.Options{LabelSelector: os.Args[4]}, os.Stdout)
	}
	stop()
	kit.Exit("hosts", err)
}

// state is what all hosts have in sum. It is told once a second, as a line of JSON.
type state struct {
	Synced int // hosts that have all
	Faulty int // hosts that tell of a fault
	Seen   int64
	// Contact is that of the host that heard from the API server longest ago; zero: one never did.
	Contact time.Time
}

// host is one that counts what it is told.
type host struct {
	*kube.Source
	seen atomic.Int64
}

// Upsert implements source.Sink.
func (h *host) Upsert(source.Object) { h.seen.Add(1) }

// Delete implements source.Sink.
func (h *host) Delete(source.Key) { h.seen.Add(1) }

// Synced implements source.Sink.
func (h *host) Synced() {}

// runHosts runs that many hosts until ctx ends.
func runHosts(ctx context.Context, n int, kubeconfigs string, o kube.Options, out io.Writer) error {
	o.Logger = slog.New(slog.DiscardHandler)
	hosts := make([]*host, n)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range hosts {
		o.Kubeconfig = kubeconfigFile(kubeconfigs, i)
		o.NodeName = fmt.Sprintf("fleet-%04d", i)
		o.UserAgent = userAgent + o.NodeName
		s, err := kube.New(o)
		if err != nil {
			return fmt.Errorf("host %d: %w", i, err)
		}
		hosts[i] = &host{Source: s}
		running.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(ramp * time.Duration(i) / time.Duration(n)):
				_ = s.Run(ctx, hosts[i]) // its errors are in its status
			}
		})
	}
	lines := json.NewEncoder(out)
	for ctx.Err() == nil {
		if err := lines.Encode(sum(hosts)); err != nil {
			return fmt.Errorf("report of the hosts: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func sum(hosts []*host) (all state) {
	for i, h := range hosts {
		st := h.Status()
		if st.Synced {
			all.Synced++
		}
		if st.Err != "" {
			all.Faulty++
		}
		if i == 0 || st.LastContact.Before(all.Contact) {
			all.Contact = st.LastContact
		}
		all.Seen += h.seen.Load()
	}
	return all
}
