package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// lab is the network of a run: a network namespace with the API server and all endpoints, and a network namespace for
// each program.
type lab struct {
	prefix    string
	api       netip.Addr
	patience  time.Duration
	hosts     []*host
	endpoints net.Listener
}

// host is a network namespace with a link to the endpoints' network namespace.
type host struct {
	netns, link   string
	addr, gateway netip.Addr
	// connectTimeout is the timeout of a connection attempt. If a packet is dropped, the attempt lasts until this
	// timeout, so the timeout limits the error in the measured time.
	connectTimeout time.Duration
}

func (l *lab) core() string { return l.prefix + "core" }

// newLab creates the endpoints' network namespace. A server in this namespace accepts connections to
// cluster.EndpointPort on every address in 10.128.0.0/9, and responds with the four bytes of the address.
func newLab(ctx context.Context, patience time.Duration) (*lab, error) {
	l := &lab{
		prefix: fmt.Sprintf("ewbench%d-", os.Getpid()), api: netip.MustParseAddr("10.255.0.1"),
		patience: patience,
	}
	err := kit.IP(ctx,
		"netns add "+l.core(),
		"-n "+l.core()+" link set lo up",
		"-n "+l.core()+" addr add "+l.api.String()+"/32 dev lo",
		"-n "+l.core()+" route add local 10.128.0.0/9 dev lo")
	if err == nil {
		err = l.serve()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) addHost(ctx context.Context, name string) (*host, error) {
	n := len(l.hosts) + 1
	gateway := netip.AddrFrom4([4]byte{172, 20, byte(n), 1})
	h := &host{
		netns: l.prefix + name, link: fmt.Sprintf("host%d", n),
		gateway: gateway, addr: gateway.Next(), connectTimeout: l.patience,
	}
	l.hosts = append(l.hosts, h)
	return h, l.makeHost(ctx, h)
}

// resetHost replaces a stopped program's network namespace with a new one, which has no rules, connections or Service
// addresses.
func (l *lab) resetHost(ctx context.Context, h *host) error {
	if err := kit.IP(ctx, "-n "+l.core()+" link del "+h.link, "netns del "+h.netns); err != nil {
		return err
	}
	return l.makeHost(ctx, h)
}

func (l *lab) makeHost(ctx context.Context, h *host) error {
	return kit.IP(ctx,
		"netns add "+h.netns,
		"-n "+h.netns+" link set lo up",
		"-n "+l.core()+" link add "+h.link+" type veth peer name eth0 netns "+h.netns,
		"-n "+l.core()+" addr add "+h.gateway.String()+"/24 dev "+h.link,
		"-n "+l.core()+" link set "+h.link+" up",
		"-n "+h.netns+" addr add "+h.addr.String()+"/24 dev eth0",
		"-n "+h.netns+" link set eth0 up",
		"-n "+h.netns+" route add default via "+h.gateway.String())
}

func (l *lab) close() {
	if l.endpoints != nil {
		_ = l.endpoints.Close()
	}
	// The cleanup needs a new context, because the run's context may already be done.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, h := range l.hosts {
		_ = kit.IP(ctx, "netns del "+h.netns)
	}
	_ = kit.IP(ctx, "netns del "+l.core())
}

// serve starts one server for all endpoints. The server sends each client the address that the client connected to.
func (l *lab) serve() error {
	return cluster.RunInNetns(l.core(), func() (err error) {
		if l.endpoints, err = net.Listen("tcp4", fmt.Sprintf(":%d", cluster.EndpointPort)); err != nil {
			return fmt.Errorf("listener for the endpoints: %w", err)
		}
		go func() {
			for {
				conn, err := l.endpoints.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil {
					continue
				}
				own := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().As4()
				_, _ = conn.Write(own[:])
				_ = conn.Close()
			}
		}()
		return nil
	})
}

func (h *host) get(ctx context.Context, url string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = cluster.RunInNetns(h.netns, func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", url, err)
	}
	return client.Do(req)
}

// deleteFlows deletes all tracked connections. If a client tried to connect before the rules existed, the attempt's
// conntrack entry would prevent the translation of a new connection from the same port for two minutes. The conntrack
// entries of closed connections also use memory.
func (b *bench) deleteFlows() error {
	for _, p := range b.programs() {
		err := cluster.RunInNetns(p.host.netns,
			func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
		if err != nil {
			return fmt.Errorf("flush of the connection-tracking table on %s's host: %w", p.name, err)
		}
	}
	return nil
}
