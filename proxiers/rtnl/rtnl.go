// Package rtnl watches the host's links, addresses, routes, routing rules and network settings for changes. The kernel
// reports the changes in rtnetlink notifications.
//
// A Watcher may miss notifications. The kernel drops notifications while the socket's buffer is full, and the socket
// itself may fail. After the Watcher has missed notifications, any watched object may have changed. A Watcher reports
// each loss, reopens a failed socket, and continues.
package rtnl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

// BatchTime is the time for which a Watcher collects notifications before it calls Options.OnChange. When an interface
// comes up, for example, the kernel sends several notifications.
const BatchTime = 50 * time.Millisecond

// After a socket fails, the Watcher waits before it reopens the socket. The pause starts at minPause and doubles with
// each failure, up to maxPause. Each loss of notifications may cause a full sync. Without the growing pause, a socket
// that fails repeatedly could therefore cause a full sync every second.
const (
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
)

// Topic is a bit mask of notification kinds.
type Topic uint

// The notification topics.
const (
	Links Topic = 1 << iota
	Addresses
	Routes
	Rules
	// Settings selects notifications about the sysctls in net.ipv4.conf and net.ipv6.conf, including
	// net.ipv4.ip_forward.
	Settings
)

var groups = map[Topic][]uint{
	Links:     {unix.RTNLGRP_LINK},
	Addresses: {unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR},
	Routes:    {unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE},
	Rules:     {unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE},
	Settings:  {unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
}

// Kernel opens sockets that receive the notifications sent to multicast groups.
type Kernel interface {
	Subscribe(groups ...uint) (Socket, error)
}

// Socket receives notifications from the kernel.
type Socket interface {
	// Receive waits for notifications. The error unix.ENOBUFS means that the kernel dropped some notifications but the
	// socket still works.
	Receive() ([]syscall.NetlinkMessage, error)
	// Close unblocks Receive.
	Close()
}

// Options configures a Watcher. Note and OnLoss run on one goroutine, and OnChange runs on another.
type Options struct {
	Logger *slog.Logger
	Topics Topic
	// Kernel opens the sockets. A nil Kernel means Host.
	Kernel Kernel
	// Note processes a notification and reports whether it is relevant.
	Note func(*syscall.NetlinkMessage) bool
	// The Watcher calls OnLoss after it has missed notifications.
	OnLoss func()
	// The Watcher calls OnChange once for all relevant notifications within BatchTime. The Watcher also calls OnChange
	// after it calls OnLoss. OnChange may be nil.
	OnChange func()
}

// Watcher receives notifications about Options.Topics and calls the functions in Options.
type Watcher struct {
	opts   Options
	socket Socket // opened by Open, but not yet used by Run
	lost   bool   // notifications were lost before the socket was opened
}

// New returns a Watcher that does nothing until Open or Run is called.
func New(opts Options) *Watcher {
	if opts.Kernel == nil {
		opts.Kernel = Host{}
	}
	return &Watcher{opts: opts}
}

// Open opens the socket in the calling thread's network namespace. Run also receives the notifications that arrive
// between the calls to Open and Run. After a socket fails, Run calls Open itself.
func (w *Watcher) Open() error {
	if w.socket != nil {
		return nil
	}
	var of []uint
	for topic, list := range groups {
		if w.opts.Topics&topic != 0 {
			of = append(of, list...)
		}
	}
	socket, err := w.opts.Kernel.Subscribe(of...)
	if err != nil {
		return fmt.Errorf("subscription to rtnetlink notifications: %w", err)
	}
	w.socket = socket
	return nil
}

// Close closes the socket of a Watcher that is not running.
func (w *Watcher) Close() {
	if w.socket != nil {
		w.socket.Close()
		w.socket = nil
	}
}

// Run watches the topics until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := w.Open()
		if err == nil {
			err = w.follow(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		w.lost = true
		w.opts.Logger.Warn("cannot watch the network configuration for changes, retrying", "error", err,
			"retry_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	w.Close()
}

// follow reads from the socket until a read fails or ctx is done.
func (w *Watcher) follow(ctx context.Context) error {
	matters, failed := make(chan struct{}, 1), make(chan error, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() { failed <- contain.Call(func() error { return w.receive(matters) }) })
	defer func() {
		w.socket.Close() // unblocks the receiver
		receiver.Wait()
		w.socket = nil
	}()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			w.lost = w.lost || contain.IsPanic(err)
			contain.Rethrow(err)
			return err
		case <-matters:
			if settled == nil {
				settled = time.After(BatchTime)
			}
		case <-settled:
			settled = nil
			if w.opts.OnChange != nil {
				w.opts.OnChange()
			}
		}
	}
}

func (w *Watcher) receive(matters chan<- struct{}) error {
	lost := w.lost // notifications may have been lost between two sockets
	w.lost = false
	var messages []syscall.NetlinkMessage
	for {
		if w.take(messages, lost) {
			select {
			case matters <- struct{}{}:
			default:
			}
		}
		var err error
		messages, err = w.socket.Receive()
		lost = errors.Is(err, unix.ENOBUFS)
		if err != nil && !lost {
			return fmt.Errorf("receive rtnetlink notifications: %w", err)
		}
	}
}

func (w *Watcher) take(messages []syscall.NetlinkMessage, lost bool) (matters bool) {
	if lost {
		w.opts.OnLoss()
	}
	for i := range messages {
		if w.opts.Note(&messages[i]) {
			matters = true
		}
	}
	return matters || lost
}
