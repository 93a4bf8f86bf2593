package nodeinfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"edgeway/proxiers/contain"
	"edgeway/proxiers/rtnl"
)

func TestWatcherRecoversFromBrokenSocket(t *testing.T) {
	l := newLab(t, "link set lo up")
	kernel := &breakableKernel{}
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

// breakableKernel is an rtnl.Kernel whose sockets a test can break.
type breakableKernel struct {
	ns   netns.NsHandle
	mu   sync.Mutex
	last rtnl.Socket
}

func (b *breakableKernel) Subscribe(groups ...uint) (rtnl.Socket, error) {
	runtime.LockOSThread() // the thread exits with its goroutine
	if err := netns.Set(b.ns); err != nil {
		return nil, err
	}
	socket, err := rtnl.Host{}.Subscribe(groups...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = socket
	return socket, err
}

func (b *breakableKernel) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last.Close()
}

// panickingKernel is an rtnl.Kernel whose first socket panics when it receives its first notification.
type panickingKernel struct {
	breakableKernel
	sockets int
}

type panickingSocket struct{ rtnl.Socket }

func (p *panickingKernel) Subscribe(groups ...uint) (rtnl.Socket, error) {
	socket, err := p.breakableKernel.Subscribe(groups...)
	if p.sockets++; p.sockets == 1 {
		return panickingSocket{socket}, err
	}
	return socket, err
}

func (s panickingSocket) Receive() ([]syscall.NetlinkMessage, error) {
	if _, err := s.Socket.Receive(); err != nil {
		return nil, err
	}
	panic("on purpose")
}

// If a notification causes a panic, Run panics too, and the next Run reads the change that the notification announced.
func TestWatcherRunAfterPanic(t *testing.T) {
	l := newLab(t, "link set lo up")
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	w := New(slog.New(slog.DiscardHandler), Options{Kernel: &panickingKernel{breakableKernel: breakableKernel{ns: ns}}})
	ctx, cancel := context.WithCancel(t.Context())
	run := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread exits with its goroutine
			done <- contain.Call(func() error { return errors.Join(netns.Set(ns), w.Run(ctx)) })
		}()
		return done
	}
	first := run()
	<-w.Ready()
	l.ip("addr add 192.0.2.1/32 dev lo")
	if err := <-first; !contain.IsPanic(err) {
		t.Fatalf("the first Run ends with %v", err)
	}
	next := run()
	for !slices.ContainsFunc(w.Host().Addrs, func(a Addr) bool { return a.Addr.String() == "192.0.2.1" }) {
		select {
		case <-w.Changed():
		case <-time.After(30 * time.Second):
			t.Fatal("the address is not found")
		}
	}
	cancel()
	if err := <-next; err != nil {
		t.Error(err)
	}
}
