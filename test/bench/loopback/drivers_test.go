package main

import (
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/test/bench/kit"
)

// tiny is a bench in which every measure takes some hundredths of a second.
func tiny(t *testing.T) *bench {
	t.Helper()
	b, err := newBench(t.Context(), options{rounds: 1, window: 50 * time.Millisecond, connections: 60, idle: 40})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// Each program is measured at everything, and no figure is one that cannot be.
func TestEveryProgramIsMeasured(t *testing.T) {
	for _, program := range []string{"haproxy", "socat", socketProxyd} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("scripts/bench-loopback installs what is missing: %v", err)
		}
	}
	b := tiny(t)
	if err := b.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.relays {
		for _, m := range measures() {
			value, ok := b.results.median(m, r.name)
			if of := ofProgram(m); of && r.cg == nil {
				if ok {
					t.Errorf("%s of %s: %v, of no program", m, r.name, value)
				}
			} else if !ok || value < 0 && m != idleMemory || !of && value == 0 {
				t.Errorf("%s of %s: %v, measured: %v", m, r.name, value, ok)
			}
		}
		if pids, err := r.processes(); err != nil || len(pids) > 0 {
			t.Errorf("%s has left processes %v behind, error %v", r.name, pids, err)
		}
	}
}

// ofProgram reports whether a measure is about a program itself. In so short a run it may be 0. On a busy machine the kernel takes
// pages away meanwhile, so the memory of idle connections may be below 0.
func ofProgram(m measure) bool {
	return m == idleMemory || m == rate.CPU() || m == down1.CPU() || m == up1.CPU() || m == down8.CPU() || m == up8.CPU()
}

// bare is a lab with the endpoint, and no program.
func bare(t *testing.T) *bench {
	t.Helper()
	b := &bench{results: results{kit.Figures{}}}
	t.Cleanup(b.close)
	var err error
	if b.lab, err = newLab(t.Context(), labName()); err != nil {
		t.Fatal(err)
	}
	if err := b.startEndpoint(); err != nil {
		t.Fatal(err)
	}
	return b
}

// What arrives at the endpoint is counted to the byte.
func TestTheEndpointCountsWhatItDrops(t *testing.T) {
	b := bare(t)
	err := b.lab.do(func() error {
		fd, sent, err := dial(endpointAddr, askDrop)
		if err != nil || !sent {
			t.Fatalf("sent %v, error %v", sent, err)
		}
		const bytes = 12345
		if _, err := unix.Write(fd, make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
		// The endpoint has one thread, which may have been about to look at the monitor first.
		s, err := b.monitor.status()
		for until := time.Now().Add(5 * time.Second); err == nil && s.open == 0 && time.Now().Before(until); {
			s, err = b.monitor.status()
		}
		if err != nil || s.open != 1 {
			t.Errorf("%+v with one connection, error %v", s, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		if err := b.monitor.idle(); err != nil {
			t.Error(err)
		}
		s, err = b.monitor.status()
		if s.dropped != bytes || s.open != 0 {
			t.Errorf("%+v, want %d bytes and no connection", s, bytes)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A transfer counts what arrived within its window alone, in both directions.
func TestTransfer(t *testing.T) {
	b := bare(t)
	for name, ask := range map[string]byte{"down": askSend, "up": askDrop} {
		marks := 0
		err := b.lab.do(func() error {
			tr := transfer{to: endpointAddr, streams: 3, ask: ask, monitor: b.monitor}
			const window = 100 * time.Millisecond
			bytes, took, err := tr.run(20*time.Millisecond, window, func() error {
				marks++
				return nil
			})
			if bytes < 1<<20 || took < window {
				t.Errorf("%s: %v bytes in %v", name, bytes, took)
			}
			return err
		})
		if err != nil || marks != 2 {
			t.Errorf("%s: %d marks, error %v", name, marks, err)
		}
	}
}

// Connections that are kept are open until they are closed; all of a volley are counted.
func TestVolley(t *testing.T) {
	b := bare(t)
	err := b.lab.do(func() error {
		v := volley{to: endpointAddr, count: 50, width: 7, keep: true}
		defer v.close()
		if err := v.run(); err != nil {
			return err
		}
		if s, err := b.monitor.status(); err != nil || s.open != 50 || len(v.delays) != 50 {
			t.Errorf("%+v with %d delays, want 50 of both; error %v", s, len(v.delays), err)
		}
		v.close()
		return b.monitor.idle()
	})
	if err != nil {
		t.Error(err)
	}
}

// A connection that is closed without an answer, or refused, ends the run: no figure is made of it.
func TestAFailedConnectionIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			var ask [1]byte
			_, _ = conn.Read(ask[:])
			_ = conn.Close()
		}
	}()
	to := listener.Addr().(*net.TCPAddr).AddrPort()
	v := volley{to: to, count: 1, width: 1}
	if err := v.run(); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
	_ = listener.Close()
	v = volley{to: to, count: 1, width: 1}
	if err := v.run(); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
}

// Where there are few file descriptors, a program gets as many idle connections as it has descriptors for.
func TestIdleConnections(t *testing.T) {
	for _, c := range []struct {
		name          string
		wanted, files int
		want          int
	}{
		{haproxyName, 10000, 100000, 10000},
		{oursName, 10000, 20000, 9750},
		{socketName, 10000, 20000, 3250},
		{socatName, 10000, 20000, 500},
		{socatName, 40, 20000, 40},
	} {
		if got := idleConnections(c.name, c.wanted, c.files); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}
