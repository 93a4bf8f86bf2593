package nodeinfo

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"edgeway/proxiers/rtnl"
)

// A watcher whose socket fails reads the state again, and hears of later changes.
func TestBrokenSocket(t *testing.T) {
	l := newLab(t, "link set lo up")
	kernel := &breaking{}
	w := New(slog.New(slog.DiscardHandler), Options{Kernel: kernel})
	ctx, cancel := context.WithCancel(t.Context())
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	kernel.ns = ns
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- w.Run(ctx)
	}()
	<-w.Ready()
	for i := range 3 {
		kernel.fail()
		addr := fmt.Sprintf("192.0.2.%d", i)
		l.ip("addr add " + addr + "/32 dev lo")
		for !slices.ContainsFunc(w.Host().Addrs, func(a Addr) bool { return a.Addr.String() == addr }) {
			select {
			case <-w.Changed():
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: no change", addr)
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// breaking is the lab's kernel with sockets that can be made to fail.
type breaking struct {
	ns   netns.NsHandle
	mu   sync.Mutex
	last rtnl.Socket
}

func (b *breaking) Subscribe(groups ...uint) (rtnl.Socket, error) {
	runtime.LockOSThread() // never unlocked
	if err := netns.Set(b.ns); err != nil {
		return nil, err
	}
	socket, err := rtnl.Host{}.Subscribe(groups...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = socket
	return socket, err
}

func (b *breaking) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last.Close()
}
