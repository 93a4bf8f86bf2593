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

// hostsCommand is the first argument of the process that runs the hosts. The other arguments are the number of hosts,
// the directory of their kubeconfigs and a label selector.
const hostsCommand = "be-the-hosts"

const userAgent = "edgeway-fleet/"

// ramp is the period within which the hosts start, at regular intervals.
const ramp = 10 * time.Second

// hostsUser is the hosts' user ID. Each host uses an inotify instance to watch its kubeconfig, and Linux allows 128
// instances per user. If the hosts ran as root, they would leave no inotify instances for root's other programs. A host
// without an inotify instance polls its kubeconfig.
const hostsUser = 65534

// runHostsProcess runs the hosts and exits if the first argument of this process is hostsCommand.
func runHostsProcess() {
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

// state is the combined state of all hosts. The process that runs the hosts writes the state as a line of JSON once a
// second.
type state struct {
	Synced int // the number of hosts that have received all objects
	Faulty int // the number of hosts that report an error
	Seen   int64
	// Contact is the earliest of the hosts' last contact times, or the zero time if a host has never reached the API
	// server.
	Contact time.Time
}

// host is a source and a source.Sink that counts the source's events.
type host struct {
	*kube.Source
	seen atomic.Int64
}

func (h *host) Upsert(source.Object) { h.seen.Add(1) }

func (h *host) Delete(source.Key) { h.seen.Add(1) }

func (h *host) Synced() {}

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
				_ = s.Run(ctx, hosts[i]) // the source's status also contains the error
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
		if st.Fault.Message != "" {
			all.Faulty++
		}
		if i == 0 || st.LastContact.Before(all.Contact) {
			all.Contact = st.LastContact
		}
		all.Seen += h.seen.Load()
	}
	return all
}
