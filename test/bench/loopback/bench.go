package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/test/bench/cgroup"
	"edgeway/test/bench/kit"
)

// bench is one run.
type bench struct {
	opts     options
	log      *slog.Logger
	dir      string
	lab      *lab
	endpoint *exec.Cmd
	alive    io.Closer // the endpoint ends when this is closed
	monitor  *monitor
	relays   []*relay
	results  results
}

func newBench(ctx context.Context, opts options) (*bench, error) {
	dir, err := os.MkdirTemp("", "edgeway-loopback-")
	if err != nil {
		return nil, fmt.Errorf("directory of the bench: %w", err)
	}
	b := &bench{opts: opts, dir: dir, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), results: results{kit.Figures{}}}
	if err := b.setup(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) setup(ctx context.Context) error {
	files, err := raiseFileLimit()
	if err != nil {
		return err
	}
	if b.lab, err = newLab(ctx, labName()); err != nil {
		return err
	}
	if err := b.startEndpoint(); err != nil {
		return err
	}
	haproxy, err := newHAProxy(b.dir)
	if err != nil {
		return err
	}
	ours, err := newOurs(ctx, b.dir, b.opts.edgeway)
	if err != nil {
		return err
	}
	b.relays = []*relay{direct(), ours, haproxy, newSocketProxyd(), newSocat()}
	for _, r := range b.relays {
		r.idle = idleConnections(r.name, b.opts.idle, files)
		r.log = filepath.Join(b.dir, r.name+".log")
		if len(r.argv) == 0 {
			continue
		}
		if r.cg, err = cgroup.New(b.lab.netns + "-" + r.name); err != nil {
			return err
		}
	}
	return nil
}

// raiseFileLimit raises the limit of file descriptors to what is allowed, for this process and those
// that it starts, and gives it.
func raiseFileLimit() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of file descriptors: %w", err)
	}
	const wanted = 100000
	if limit.Cur >= wanted {
		return int(limit.Cur), nil
	}
	// Root may mostly raise the hard limit too; in a container it may not.
	raised := unix.Rlimit{Cur: wanted, Max: max(wanted, limit.Max)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
		return wanted, nil
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of file descriptors: %w", err)
	}
	return int(limit.Cur), nil
}

// idleConnections is how many idle connections a relay gets: as many as wanted, unless it would run out
// of file descriptors.
func idleConnections(name string, wanted, files int) int {
	const others = 500 // file descriptors for anything else
	switch name {
	case socatName: // a process for each, and what all those processes cost shows with fewer
		return min(wanted, 500)
	case socketName: // two sockets and two pipes
		return min(wanted, (files-others)/6)
	}
	return min(wanted, (files-others)/2)
}

func (b *bench) startEndpoint() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("path of this program: %w", err)
	}
	cmd := b.lab.command(self, endpointCommand)
	cmd.Stderr = os.Stderr
	if b.alive, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	b.endpoint = cmd
	if err := direct().await(b.lab); err != nil {
		return err
	}
	return b.lab.do(func() error {
		b.monitor, err = newMonitor()
		return err
	})
}

func (b *bench) close() {
	for _, r := range b.relays {
		r.close()
	}
	if b.monitor != nil {
		b.monitor.close()
	}
	if b.endpoint != nil {
		_ = b.alive.Close()
		_ = b.endpoint.Wait()
	}
	if b.lab != nil {
		b.lab.close()
	}
	_ = os.RemoveAll(b.dir)
}

// all measures what needs running programs in turns, and then the memory of each on its own.
func (b *bench) all(ctx context.Context) error {
	for _, r := range b.relays {
		if err := r.start(b.lab); err != nil {
			return err
		}
	}
	for round := range b.opts.rounds {
		for _, step := range b.steps() {
			b.log.Info("measuring", "round", round+1, "what", step.name)
			if err := b.inTurns(ctx, step, round); err != nil {
				return err
			}
		}
	}
	for _, r := range b.relays {
		if err := r.stop(); err != nil {
			return err
		}
	}
	for range min(b.opts.rounds, memoryRounds) {
		if err := b.inTurns(ctx, step{"memory", b.memory}, 0); err != nil {
			return err
		}
	}
	return nil
}

// inTurns has every program measured once; who is first changes with each round.
func (b *bench) inTurns(ctx context.Context, s step, round int) error {
	for i := range b.relays {
		if err := ctx.Err(); err != nil {
			return err
		}
		r := b.relays[(i+round)%len(b.relays)]
		err := b.lab.do(func() error {
			// Our rules have the kernel track connections, everybody's here, and remember closed ones.
			if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				return fmt.Errorf("connection tracking: %w", err)
			}
			if err := s.run(ctx, r); err != nil {
				return err
			}
			return b.monitor.idle()
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w; %s", s.name, r.name, err, r.describe())
		}
	}
	return nil
}
