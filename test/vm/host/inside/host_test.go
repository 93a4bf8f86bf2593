package inside

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// network is the network around the machine, with a client and two endpoints that respond on port 8080 over IPv4 and
// IPv6.
type network struct {
	client, ep1, ep2 *netlab.Host
	gateway          *netlab.Host // on the same network as the machine's address
}

func newNetwork(t *testing.T) *network {
	lab := netlab.New(t, netlab.Options{InPlace: true})
	n := &network{
		gateway: lab.Gateway,
		client:  lab.Host("client", netip.MustParseAddr("203.0.113.2")),
		ep1:     lab.Host("ep1", netip.MustParseAddr("10.244.1.11"), netip.MustParseAddr("fd00:244:1::11")),
		ep2:     lab.Host("ep2", netip.MustParseAddr("10.244.2.12"), netip.MustParseAddr("fd00:244:2::12")),
	}
	for _, ep := range []*netlab.Host{n.ep1, n.ep2} {
		for _, addr := range ep.Addrs {
			if err := ep.Serve(ep.Name, netip.AddrPortFrom(addr, 8080), plan.TCP); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The kernel uses a deprecated address only for connections that request it as their source.
	out, err := exec.CommandContext(t.Context(), "ip", "address", "add", ownAddr6, "dev", "lo", "preferred_lft", "0",
		"nodad").CombinedOutput()
	if err != nil {
		t.Fatalf("ip address add: %v\n%s", err, out)
	}
	return n
}

type host struct {
	*testing.T
	*network
}

// eventTimeout is the time limit for events without a documented limit. The limit is long, because the machine is slow.
const eventTimeout = 10 * time.Minute

// run runs a program that must succeed, and returns the program's output.
func (h *host) run(name string, args ...string) string {
	h.Helper()
	out, code := h.try(name, args...)
	if code != 0 {
		h.Fatalf("%s %s: exit code %d\n%s", name, strings.Join(args, " "), code, out)
	}
	return out
}

func (h *host) try(name string, args ...string) (out string, code int) {
	h.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(h.Context()), name, args...) // cleanups also use try
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "SYSTEMD_PAGER=",
		"SYSTEMD_COLORS=0")
	start := time.Now()
	raw, err := cmd.CombinedOutput()
	if took := time.Since(start); took > 3*time.Second {
		h.Logf("%s %s took %.1f s", name, strings.Join(args, " "), took.Seconds())
	}
	if cmd.ProcessState == nil {
		h.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(string(raw)), cmd.ProcessState.ExitCode()
}

func (h *host) show(unit, property string) string {
	h.Helper()
	return h.run("systemctl", "show", "-P", property, unit)
}

func (h *host) becomes(unit, want string) {
	h.Helper()
	h.waitFor(eventTimeout, func() error {
		if state := h.show(unit, "ActiveState"); state != want {
			return fmt.Errorf("%s is %s, want %s", unit, state, want)
		}
		return nil
	})
}

func (h *host) write(path, text string) {
	h.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.Fatal(err)
	}
}

func (h *host) remove(path string) {
	h.Helper()
	if err := os.RemoveAll(path); err != nil {
		h.Error(err)
	}
}

// waitFor calls check repeatedly until check returns nil, and returns the elapsed time. It sleeps for half of the time,
// because other programs also need the CPU.
func (h *host) waitFor(limit time.Duration, check func() error) time.Duration {
	h.Helper()
	start := time.Now()
	for {
		began := time.Now()
		err, took := check(), time.Since(start)
		switch {
		case err == nil:
			return took
		case took > limit:
			h.Fatalf("after %.1f s: %v", took.Seconds(), err)
		}
		time.Sleep(max(20*time.Millisecond, time.Since(began)))
	}
}

func (h *host) eventually(text, name string, args ...string) {
	h.Helper()
	h.waitFor(eventTimeout, func() error {
		out, _ := h.try(name, args...)
		if !strings.Contains(out, text) {
			return fmt.Errorf("%s %s does not say %q:\n%s", name, strings.Join(args, " "), text, out)
		}
		return nil
	})
}

func (h *host) contains(out, text string) {
	h.Helper()
	if !strings.Contains(out, text) {
		h.Errorf("%q is not in:\n%s", text, out)
	}
}
