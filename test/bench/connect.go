package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/test/e2e/cluster"
)

var errNoAnswer = errors.New("no answer")

// connect opens a connection and returns the address of the endpoint that responded. The caller's thread must be in the
// host's network namespace. connect uses plain system calls to keep the Go runtime's poller out of the measured time.
func connect(to netip.AddrPort, timeout time.Duration) (netip.Addr, error) {
	fd, err := open(to, timeout)
	if err != nil {
		return netip.Addr{}, err
	}
	defer unix.Close(fd)
	// The connection is established, so connect only has to wait for the response.
	if err := wait(fd, unix.POLLIN, time.Second); err != nil {
		return netip.Addr{}, err
	}
	var raw [4]byte
	n, err := unix.Read(fd, raw[:])
	if err != nil {
		return netip.Addr{}, fmt.Errorf("answer of %s: %w", to, err)
	}
	if n != len(raw) {
		return netip.Addr{}, fmt.Errorf("answer of %s: %d bytes", to, n)
	}
	return netip.AddrFrom4(raw), nil
}

// open returns a connected socket. Closing the socket resets the connection, so neither side keeps any state.
func open(to netip.AddrPort, timeout time.Duration) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	if err := establish(fd, to, timeout); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func establish(fd int, to netip.AddrPort, timeout time.Duration) error {
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return fmt.Errorf("linger: %w", err)
	}
	err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	if err := wait(fd, unix.POLLOUT, timeout); err != nil {
		return err
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("connection state: %w", err)
	}
	if code != 0 {
		return fmt.Errorf("connect to %s: %w", to, unix.Errno(code))
	}
	return nil
}

func wait(fd int, events int16, timeout time.Duration) error {
	until := time.Now().Add(timeout)
	for {
		left := unix.NsecToTimespec(max(0, time.Until(until).Nanoseconds()))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: events}}, &left, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		if n == 0 {
			return errNoAnswer
		}
		return nil
	}
}

// goal is a connection that must succeed. If the endpoint field is set, the connection must reach that endpoint.
type goal struct {
	to       netip.AddrPort
	endpoint netip.Addr
}

func serviceGoal(i int) goal { return goal{to: netip.AddrPortFrom(cluster.ClusterIP(i), 80)} }

// connectionsPerAttempt is the maximum number of connections in one attempt to reach a goal. Each connection reaches
// one of five endpoints at random, so 8 connections miss a new endpoint with a probability of 1/6.
const connectionsPerAttempt = 8

// reach tries the goals in order, each until it succeeds, and returns the time of the last success.
func (h *host) reach(ctx context.Context, goals []goal) (time.Time, error) {
	began, reached := time.Now(), 0 // the start of the attempts to reach the current goal
	var last error
	err := cluster.RunInNetns(h.netns, func() error {
		for ctx.Err() == nil {
			try := time.Now()
			for last = nil; reached < len(goals) && last == nil; {
				if last = goals[reached].try(h.connectTimeout); last == nil {
					reached++
					began, try = time.Now(), time.Now()
				}
			}
			if reached == len(goals) {
				return nil
			}
			time.Sleep(pause(time.Since(began), time.Since(try)))
		}
		return fmt.Errorf("%d of %d connections failed: %w: %w", len(goals)-reached, len(goals), ctx.Err(), last)
	})
	return time.Now(), err
}

// pause returns the time to wait before the next attempt. Without pauses, the attempts would take CPU time from the
// measured program. A pause lasts 1/200 of the elapsed time, or up to 1/20 if the attempts take a long time, for
// example on a slow machine.
func pause(all, try time.Duration) time.Duration {
	return max(300*time.Microsecond, all/200, min(10*try, all/20))
}

func (g goal) try(patience time.Duration) error {
	for range connectionsPerAttempt {
		got, err := connect(g.to, patience)
		if err != nil {
			return err
		}
		if !g.endpoint.IsValid() || got == g.endpoint {
			return nil
		}
	}
	return fmt.Errorf("%s never went to %s", g.to, g.endpoint)
}

func (h *host) connectAll(targets []netip.AddrPort) (time.Duration, error) {
	var total time.Duration
	err := cluster.RunInNetns(h.netns, func() error {
		for _, to := range targets {
			began := time.Now()
			fd, err := open(to, time.Second)
			total += time.Since(began)
			if err != nil {
				return fmt.Errorf("connection to %s: %w", to, err)
			}
			_ = unix.Close(fd)
		}
		// A response proves that the endpoints have accepted all earlier connections and that the accept queue is
		// empty.
		_, err := connect(targets[0], time.Second)
		return err
	})
	return total / time.Duration(len(targets)), err
}
