package ipvs

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/rtnl"
)

// fakeKernel sends a test's route notifications in place of the kernel.
type fakeKernel struct{ sent chan any }

func (n *fakeKernel) Subscribe(...uint) (rtnl.Socket, error) {
	return &fakeSocket{sent: n.sent, closed: make(chan struct{})}, nil
}

// fakeSocket is a Socket that keeps failing after an error, unless the error is an overrun.
type fakeSocket struct {
	sent   chan any
	closed chan struct{}
	broken error
}

func (s *fakeSocket) Close() { close(s.closed) }

func (s *fakeSocket) Receive() ([]syscall.NetlinkMessage, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	select {
	case <-s.closed:
		return nil, os.ErrClosed
	case what := <-s.sent:
		if err, failed := what.(error); failed {
			if !errors.Is(err, unix.ENOBUFS) {
				s.broken = err
			}
			return nil, err
		}
		return []syscall.NetlinkMessage{what.(syscall.NetlinkMessage)}, nil
	}
}

// removal returns a notification about the removal of a local route from a routing table.
func removal(of netip.Addr, from byte) syscall.NetlinkMessage {
	data := []byte{unix.AF_INET, 32, 0, 0, from, routeProtocol, 0, unix.RTN_LOCAL, 0, 0, 0, 0, 8, 0, unix.RTA_DST, 0}
	return syscall.NetlinkMessage{
		Header: syscall.NlMsghdr{Type: unix.RTM_DELROUTE},
		Data:   append(data, of.AsSlice()...),
	}
}

// The watcher reports drift once after each of these events: the removal of Edgeway's route, dropped notifications, and
// a broken socket. The watcher then replaces the broken socket.
func TestRoutesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var drifts []string
		w := &watcher{drift: func(what string) {
			mu.Lock()
			defer mu.Unlock()
			drifts = append(drifts, what)
		}}
		ours, other := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.96.0.2")
		w.forget()
		w.remember(map[key]wanted{{at: netip.AddrPortFrom(ours, 80)}: {}})
		kernel := &fakeKernel{sent: make(chan any)}
		w.follow(slog.New(slog.DiscardHandler), kernel)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.network.Run(ctx) })
		const gone, lost = "the local route to 10.96.0.1 was removed", "the kernel dropped route notifications"
		for _, step := range []struct {
			sent any
			want []string
		}{
			{removal(other, RouteTable), nil},
			{removal(ours, RouteTable-1), nil},
			{removal(ours, RouteTable), []string{gone}},
			{error(unix.ENOBUFS), []string{lost}},
			{error(unix.EBADF), []string{lost}},
			{removal(ours, RouteTable), []string{gone}},
		} {
			select {
			case kernel.sent <- step.sent:
			case <-time.After(time.Hour):
				t.Fatalf("%v: the watcher does not read the socket", step.sent)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if !slices.Equal(drifts, step.want) {
				t.Errorf("after %v: drift %q, want %q", step.sent, drifts, step.want)
			}
			drifts = nil
		}
		cancel()
		running.Wait()
	})
}
