package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"edgeway/test/bench/cgroup"
	"edgeway/test/bench/kit"
)

// relay is a program under test, or the direct way to the endpoint, which needs none.
type relay struct {
	name string
	addr netip.AddrPort // where clients connect to
	// argv starts it; empty: the direct way.
	argv []string
	// passed says that it is handed its listening socket as file descriptor 3.
	passed bool
	// idle is the number of idle connections whose memory is measured.
	idle int

	cg  *cgroup.Group
	cmd *exec.Cmd // nil while it does not run
	log string
}

// start runs the program and waits until it relays.
func (r *relay) start(l *lab) error {
	if len(r.argv) == 0 {
		return nil
	}
	out, err := os.OpenFile(r.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", r.name, err)
	}
	defer out.Close()
	cmd := l.command(r.argv...)
	cmd.Stdout, cmd.Stderr = out, out
	if r.passed {
		socket, err := r.listener(l)
		if err != nil {
			return err
		}
		defer socket.Close()
		cmd.ExtraFiles = []*os.File{socket}
	}
	if err := r.cg.Start(cmd); err != nil {
		return fmt.Errorf("start of %s: %w", r.name, err)
	}
	r.cmd = cmd
	return r.await(l)
}

func (r *relay) listener(l *lab) (file *os.File, err error) {
	err = l.do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // systemd makes plain sockets
		listener, err := config.Listen(context.Background(), "tcp4", r.addr.String())
		if err != nil {
			return fmt.Errorf("listener of %s: %w", r.name, err)
		}
		defer listener.Close()
		file, err = listener.(*net.TCPListener).File()
		return err
	})
	return file, err
}

// await waits until one connection goes through.
func (r *relay) await(l *lab) error {
	var err error
	for until := time.Now().Add(15 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		err = l.do((&volley{to: r.addr, count: 1, width: 1}).run)
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not relay: %w; %s", r.name, err, r.describe())
}

// stop ends the program and all that it started.
func (r *relay) stop() error {
	if r.cmd == nil {
		return nil
	}
	defer func() { r.cmd = nil }()
	if err := kit.Stop(r.cmd, 10*time.Second); err != nil {
		return fmt.Errorf("stop of %s: %w", r.name, err)
	}
	// socat's processes outlive the one that listens.
	return r.cg.Kill()
}

// close stops the program and removes its control group.
func (r *relay) close() {
	_ = r.stop()
	if r.cg != nil {
		r.cg.Close()
	}
}

// cpu is the CPU time that the program has used so far, 0 for the direct way.
func (r *relay) cpu() (time.Duration, error) {
	if r.cg == nil {
		return 0, nil
	}
	return r.cg.CPU()
}

// processes are the program and all that it has started, none for the direct way.
func (r *relay) processes() ([]int, error) {
	if r.cg == nil {
		return nil, nil
	}
	return r.cg.Processes()
}

// memory is what all processes of the program hold in bytes, pages that they share counted once.
func (r *relay) memory() (float64, error) {
	pids, err := r.processes()
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", r.name, err)
		}
		bytes, err := proportional(string(raw))
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", r.name, err)
		}
		sum += bytes
	}
	return sum, nil
}

// proportional reads the proportional set size of a smaps_rollup, in bytes.
func proportional(rollup string) (float64, error) {
	for line := range strings.Lines(rollup) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, errors.New("no Pss in smaps_rollup")
}

// describe says what an error needs beside it: whether the program still runs, and the end of its log.
func (r *relay) describe() string {
	if r.cg == nil {
		return "it has no program"
	}
	pids, err := r.processes()
	if err != nil {
		return err.Error()
	}
	raw, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d processes of it run; its log ends:\n%s", len(pids), raw[max(0, len(raw)-2000):])
}
