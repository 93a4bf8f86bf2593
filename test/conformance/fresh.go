package conformance

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"edgeway/proxiers"
	"edgeway/test/netlab"
)

// freshVariable is the name of an environment variable that makes the test binary act as a fresh host. The variable's
// value is the name of the backend.
const freshVariable = "CONFORMANCE_FRESH"

// Main runs the tests of m in a separate network namespace. TestMain must call Main with all backends that the tests
// pass to Run.
func Main(m *testing.M, backends ...Backend) int {
	name := os.Getenv(freshVariable)
	if name == "" {
		if err := isolateFuzzWorker(); err != nil {
			fmt.Fprintln(os.Stderr, "network namespace for a fuzz worker:", err)
			return 1
		}
		return netlab.Isolate(m)
	}
	for _, b := range backends {
		if b.Name != name {
			continue
		}
		if err := serveFresh(b, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "fresh host:", err)
			return 1
		}
		return 0
	}
	fmt.Fprintf(os.Stderr, "fresh host: no backend %q\n", name)
	return 1
}

// isolateFuzzWorker restarts this program in its own network namespace if the program is a worker of "go test -fuzz",
// because all workers would otherwise share the namespace of their parent process. The worker's pipes to the parent
// process stay open.
func isolateFuzzWorker() error {
	const done = "CONFORMANCE_FUZZ_WORKER"
	if !slices.Contains(os.Args, "-test.fuzzworker") || os.Getenv(done) != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // Exec must run on the thread that is in the new namespace
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), done+"=1"))
}

// freshHost is a second host in its own process and network namespace. freshHost makes the same changes as the first
// host, but rebuilds its state from scratch after each sequence of changes instead of using partial syncs.
type freshHost struct {
	cmd *exec.Cmd
	enc *gob.Encoder
	dec *gob.Decoder
	in  io.Closer
}

type freshRequest struct {
	Sequence sequence
	// Reset reports whether the fresh host must return to the initial plan before the sequence.
	Reset bool
}

type freshState struct {
	Dump, Error string
	// Writes is the number of objects that the full sync wrote.
	Writes int
}

func startFresh(t testing.TB, b Backend) *freshHost {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &freshHost{cmd: exec.Command(self)}
	f.cmd.Env = append(os.Environ(), freshVariable+"="+b.Name)
	f.cmd.Stderr = t.Output()
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := f.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatalf("start a fresh host: %v", err)
	}
	f.in, f.enc, f.dec = in, gob.NewEncoder(in), gob.NewDecoder(out)
	t.Cleanup(func() {
		if err := errors.Join(f.in.Close(), f.cmd.Wait()); err != nil {
			t.Errorf("fresh host: %v", err)
		}
	})
	return f
}

// begin starts a sequence on the fresh host and returns immediately. To get the state after the sequence, call end.
func (f *freshHost) begin(r freshRequest) error { return f.enc.Encode(r) }

func (f *freshHost) end() (s freshState, err error) {
	if err := f.dec.Decode(&s); err != nil {
		return s, fmt.Errorf("fresh host: %w", err)
	}
	if s.Error != "" {
		return s, fmt.Errorf("fresh host: %s", s.Error)
	}
	return s, nil
}

func serveFresh(b Backend, in io.Reader, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "edgeway-fresh-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// While lo is down in a network namespace, Linux 6.1 treats all IPv4 addresses as broadcast addresses.
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	m, err := startMeter(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	enc, dec := gob.NewEncoder(out), gob.NewDecoder(in)
	c := newSequenceChanger()
	for {
		var r freshRequest
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if r.Reset {
			c = newSequenceChanger()
		}
		var s freshState
		err := c.performSequence(r.Sequence, func() error { return nil })
		if err == nil {
			s, err = fromScratch(b, c.spec, m)
		}
		if err != nil {
			s.Error = err.Error()
		}
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
}

func fromScratch(b Backend, sp *spec, m *meter) (s freshState, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), paced(applyTimeout))
	defer cancel()
	opts := silentEnv()
	if err := b.cleanUp(ctx, opts); err != nil {
		return s, err
	}
	next, err := sp.compile(imaginaryLab(), nil)
	if err != nil {
		return s, err
	}
	p, err := b.start(ctx, opts)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if _, err := m.countWrites(); err != nil {
		return s, err
	}
	if err := p.Apply(ctx, proxiers.NewChange(nil, next)); err != nil {
		return s, fmt.Errorf("full sync: %w", err)
	}
	if s.Writes, err = m.countWrites(); err != nil {
		return s, err
	}
	s.Dump, err = b.Dump(ctx)
	return s, err
}

// imaginaryLab returns the lab's addresses without creating any hosts.
func imaginaryLab() *labAddrs {
	l := &labAddrs{endpoints: endpointAddrs()}
	for _, f := range families {
		l.hostAddrs = append(l.hostAddrs, mustAddress(hostName, f), mustAddress("node-2", f), mustAddress("node-3", f))
	}
	return l
}

func silentEnv() proxiers.Env {
	return proxiers.Env{
		Logger: slog.New(slog.DiscardHandler), Families: families, MasqueradeBit: 14,
		Drift: func(string) {}, Wake: func() {}, Progress: func(int, int) {},
	}
}
