package cluster

import (
	"context"
	"fmt"
	"net"
	"runtime"

	"github.com/vishvananda/netns"
)

// Dial opens a connection from inside the control plane's network namespace.
func (c *Cluster) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var conn net.Conn
	err := RunInNetns(c.opts.Netns, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// RunInNetns runs f on a thread in the named network namespace, or in the current namespace if name is "".
func RunInNetns(name string, f func() error) error {
	if name == "" {
		return f()
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("own network namespace: %w", err)
	}
	defer home.Close()
	away, err := netns.GetFromName(name)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer away.Close()
	if err := netns.Set(away); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering network namespace %s: %w", name, err)
	}
	defer func() {
		// If the thread cannot return to its original namespace, the thread stays locked to the goroutine, and exits
		// when the goroutine exits.
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}
