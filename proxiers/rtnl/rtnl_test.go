package rtnl

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

// fakeKernel opens sockets that receive the messages that a test sends.
type fakeKernel struct {
	mu      sync.Mutex
	refuses bool
	groups  []uint
	opened  []time.Duration
	began   time.Time
	sockets []*fakeSocket
}

func (k *fakeKernel) Subscribe(groups ...uint) (Socket, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.opened = append(k.opened, time.Since(k.began))
	if k.refuses {
		return nil, unix.EMFILE
	}
	k.groups = groups
	s := &fakeSocket{sent: make(chan any), closed: make(chan struct{})}
	k.sockets = append(k.sockets, s)
	return s, nil
}

func (k *fakeKernel) refuse(does bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuses = does
}

func (k *fakeKernel) socket() *fakeSocket {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sockets[len(k.sockets)-1]
}

// fakeSocket is a Socket that fails permanently after any error except an overrun.
type fakeSocket struct {
	sent   chan any
	closed chan struct{}
	broken error
}

func (s *fakeSocket) Receive() ([]syscall.NetlinkMessage, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	select {
	case what := <-s.sent:
		if err, failed := what.(error); failed {
			if !errors.Is(err, unix.ENOBUFS) {
				s.broken = err
			}
			return nil, err
		}
		return what.([]syscall.NetlinkMessage), nil
	case <-s.closed:
		return nil, os.ErrClosed
	}
}

func (s *fakeSocket) Close() { close(s.closed) }

type bench struct {
	*testing.T
	kernel  *fakeKernel
	mu      sync.Mutex
	noted   []uint16
	lost    int
	changed []time.Duration
}

// run calls test with a Watcher that treats only link notifications as relevant.
func run(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, kernel: &fakeKernel{began: time.Now()}}
		w := New(Options{
			Logger: slog.New(slog.DiscardHandler), Topics: Links | Rules, Kernel: b.kernel,
			Note: func(m *syscall.NetlinkMessage) bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.noted = append(b.noted, m.Header.Type)
				return m.Header.Type == unix.RTM_NEWLINK
			},
			OnLoss: func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.lost++
			},
			OnChange: func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.changed = append(b.changed, time.Since(b.kernel.began))
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		synctest.Wait()
		test(b)
		cancel()
		running.Wait() // synctest requires that all goroutines exit
	})
}

// send passes a message or an error to the socket and waits until the Watcher has processed it.
func (b *bench) send(what any) {
	b.Helper()
	if kind, ok := what.(uint16); ok {
		what = []syscall.NetlinkMessage{{Header: syscall.NlMsghdr{Type: kind}}}
	}
	select {
	case b.kernel.socket().sent <- what:
		synctest.Wait()
	case <-time.After(time.Hour):
		b.Fatal("the Watcher does not read the socket")
	}
}

func (b *bench) want(changed []time.Duration, lost int) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.changed, changed) || b.lost != lost {
		b.Errorf("changed at %v, lost %d times; want %v and %d", b.changed, b.lost, changed, lost)
	}
}

const ms = time.Millisecond

func TestNoticesAreBatched(t *testing.T) {
	run(t, func(b *bench) {
		want := []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE}
		if got := slices.Sorted(slices.Values(b.kernel.groups)); !slices.Equal(got, want) {
			b.Errorf("subscribed to the groups %v, want %v", got, want)
		}
		b.send(uint16(unix.RTM_NEWRULE))
		time.Sleep(time.Second)
		b.want(nil, 0)
		for range 4 {
			b.send(uint16(unix.RTM_NEWLINK))
			time.Sleep(10 * ms)
		}
		time.Sleep(time.Second)
		b.want([]time.Duration{1050 * ms}, 0)
		if len(b.noted) != 5 {
			b.Errorf("noted %v", b.noted)
		}
		b.send(uint16(unix.RTM_NEWLINK))
		time.Sleep(time.Second)
		b.want([]time.Duration{1050 * ms, 2090 * ms}, 0)
	})
}

// After an overrun, in which the kernel drops notifications, the Watcher keeps using the same socket.
func TestOverrun(t *testing.T) {
	run(t, func(b *bench) {
		b.send(error(unix.ENOBUFS))
		b.send(error(unix.ENOBUFS))
		b.send(uint16(unix.RTM_NEWLINK))
		time.Sleep(time.Second)
		b.want([]time.Duration{50 * ms}, 2)
		if len(b.kernel.sockets) != 1 || len(b.noted) != 1 {
			b.Errorf("%d sockets; noted %v", len(b.kernel.sockets), b.noted)
		}
	})
}

func TestBrokenSocketIsReopened(t *testing.T) {
	run(t, func(b *bench) {
		b.send(errors.New("broken"))
		b.want(nil, 0)
		time.Sleep(time.Second)
		b.want([]time.Duration{150 * ms}, 1)
		b.send(uint16(unix.RTM_NEWLINK))
		time.Sleep(time.Second)
		b.want([]time.Duration{150 * ms, 1050 * ms}, 1)
	})
}

// The Watcher does not call OnChange while it cannot open a socket. After opening a socket, the Watcher calls OnChange
// once.
func TestRefusedSocket(t *testing.T) {
	run(t, func(b *bench) {
		b.kernel.refuse(true)
		b.send(errors.New("broken"))
		time.Sleep(10 * time.Minute)
		b.want(nil, 0)
		if n := len(b.kernel.opened); n < 10 || n > 40 {
			b.Errorf("%d attempts in ten minutes", n)
		}
		b.kernel.refuse(false)
		time.Sleep(2 * maxPause)
		synctest.Wait()
		if b.lost != 1 || len(b.changed) != 1 {
			b.Errorf("lost %d times, changed at %v", b.lost, b.changed)
		}
	})
}

// If every socket fails on its first read, the Watcher calls OnLoss only every 30 s instead of every second.
func TestRepeatedlyFailingSocket(t *testing.T) {
	run(t, func(b *bench) {
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
			before := b.kernel.socket()
			b.send(errors.New("broken"))
			for b.kernel.socket() == before && time.Now().Before(end) {
				time.Sleep(100 * ms)
			}
			synctest.Wait()
		}
		if b.lost < 100 || b.lost > 140 || len(b.changed) > b.lost {
			b.Errorf("lost %d times, changed %d times in an hour", b.lost, len(b.changed))
		}
	})
}

// A panic in a callback propagates to Run's caller. After the panic, the next Run calls OnLoss.
func TestCallbackPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := &fakeKernel{began: time.Now()}
		lost, noted := 0, 0
		w := New(Options{
			Logger: slog.New(slog.DiscardHandler), Topics: Links, Kernel: kernel,
			Note: func(*syscall.NetlinkMessage) bool {
				if noted++; noted == 1 {
					panic("on purpose")
				}
				return false
			},
			OnLoss: func() { lost++ },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		for range 2 {
			go func() {
				done <- contain.Call(func() error {
					w.Run(ctx)
					return nil
				})
			}()
			synctest.Wait()
			kernel.socket().sent <- []syscall.NetlinkMessage{{}}
			synctest.Wait()
			if noted == 1 {
				if err := <-done; !contain.IsPanic(err) {
					t.Fatalf("Run ends with %v", err)
				}
			}
		}
		if noted != 2 || lost != 1 {
			t.Errorf("%d notices, lost %d times, want 2 and once", noted, lost)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
