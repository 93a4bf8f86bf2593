package rtnl

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const patience = 30 * time.Second

// tinyHost opens sockets whose receive buffers hold only a few notifications.
type tinyHost struct{}

func (tinyHost) Subscribe(groups ...uint) (Socket, error) { return subscribe(4096, groups...) }

// newHost moves the test's thread into a new network namespace. The kernel removes the namespace when the thread exits.
func newHost(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (this test needs root): %v", err)
	}
}

func ip(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func TestHost(t *testing.T) {
	newHost(t)
	kinds := make(chan uint16, 1000)
	lost, changed := make(chan struct{}, 1000), make(chan struct{}, 1000)
	var held sync.Mutex // the test locks held to keep the Watcher from reading
	w := New(Options{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Topics: Links | Addresses | Routes | Rules | Settings, Kernel: tinyHost{},
		Note: func(m *syscall.NetlinkMessage) bool {
			held.Lock()
			defer held.Unlock()
			select {
			case kinds <- m.Header.Type:
			default:
			}
			return true
		},
		OnLoss:   func() { lost <- struct{}{} },
		OnChange: func() { changed <- struct{}{} },
	})
	if err := w.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	defer func() { cancel(); running.Wait() }()
	expect := func(what string, kind uint16) {
		t.Helper()
		for {
			select {
			case k := <-kinds:
				if k == kind {
					return
				}
			case <-time.After(patience):
				t.Fatalf("%s: no notice", what)
			}
		}
	}
	ip(t, "", "link", "set", "lo", "up")
	expect("link", unix.RTM_NEWLINK)
	ip(t, "", "addr", "add", "192.0.2.1/32", "dev", "lo")
	expect("address", unix.RTM_NEWADDR)
	ip(t, "", "route", "add", "198.51.100.0/24", "dev", "lo")
	expect("route", unix.RTM_NEWROUTE)
	ip(t, "", "rule", "add", "from", "192.0.2.99", "lookup", "main")
	expect("rule", unix.RTM_NEWRULE)
	<-changed

	held.Lock()
	var batch strings.Builder
	for i := range 500 {
		fmt.Fprintf(&batch, "addr add 10.0.%d.%d/32 dev lo\n", i/250, i%250)
	}
	ip(t, batch.String(), "-batch", "-")
	held.Unlock()
	select {
	case <-lost:
	case <-time.After(patience):
		t.Fatal("the overrun was not noticed")
	}
	time.Sleep(4 * BatchTime)
	for len(kinds) > 0 {
		<-kinds
	}
	ip(t, "", "rule", "del", "from", "192.0.2.99")
	expect("rule after the overrun", unix.RTM_DELRULE)
}
