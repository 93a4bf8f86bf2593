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

// lab is the network of a run: one namespace that holds the API server and all endpoints, and one
// for each host that runs a program under test.
type lab struct {
	prefix string
	api    netip.Addr
	// patience is that of the hosts.
	patience time.Duration
	hosts    []*host
	servers  []net.Listener
}

// host is a network namespace with one link to the namespace of the endpoints.
type host struct {
	netns string
	addr  netip.Addr
	// patience is how long one connection may take that is tried until it works. It bounds the error of the time that is taken
	// so, since a packet that a rule drops is never answered.
	patience time.Duration
}

func (l *lab) core() string { return l.prefix + "core" }

// newLab makes the namespace of the endpoints. Every address of 10.128.0.0/9 answers there on
// cluster.EndpointPort, with its own four bytes, and on askPort to requests.
func newLab(ctx context.Context, patience time.Duration) (*lab, error) {
	l := &lab{prefix: fmt.Sprintf("ewbench%d-", os.Getpid()), api: netip.MustParseAddr("10.255.0.1"), patience: patience}
	err := kit.IP(ctx,
		"netns add "+l.core(),
		"-n "+l.core()+" link set lo up",
		"-n "+l.core()+" addr add "+l.api.String()+"/32 dev lo",
		"-n "+l.core()+" route add local 10.128.0.0/9 dev lo")
	if err != nil {
		l.close()
		return nil, err
	}
	if err := errors.Join(l.serve(cluster.EndpointPort, answer), l.serve(askPort, answerRequests)); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// addHost makes a namespace for one program.
func (l *lab) addHost(ctx context.Context, name string) (*host, error) {
	n := len(l.hosts) + 1
	link := fmt.Sprintf("host%d", n)
	gateway := netip.AddrFrom4([4]byte{172, 20, byte(n), 1})
	h := &host{netns: l.prefix + name, addr: gateway.Next(), patience: l.patience}
	l.hosts = append(l.hosts, h)
	return h, kit.IP(ctx,
		"netns add "+h.netns,
		"-n "+h.netns+" link set lo up",
		"-n "+l.core()+" link add "+link+" type veth peer name eth0 netns "+h.netns,
		"-n "+l.core()+" addr add "+gateway.String()+"/24 dev "+link,
		"-n "+l.core()+" link set "+link+" up",
		"-n "+h.netns+" addr add "+h.addr.String()+"/24 dev eth0",
		"-n "+h.netns+" link set eth0 up",
		"-n "+h.netns+" route add default via "+gateway.String())
}

// close removes all namespaces.
func (l *lab) close() {
	for _, s := range l.servers {
		_ = s.Close()
	}
	// The run's own context may be over.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, h := range l.hosts {
		_ = kit.IP(ctx, "netns del "+h.netns)
	}
	_ = kit.IP(ctx, "netns del "+l.core())
}

// serve has all endpoints answer on a port.
func (l *lab) serve(port int, answer func(net.Listener)) error {
	return cluster.InNetns(l.core(), func() error {
		listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("listener of the endpoints: %w", err)
		}
		l.servers = append(l.servers, listener)
		go answer(listener)
		return nil
	})
}

// answer tells every client which address it reached.
func answer(listener net.Listener) {
	for {
		conn, err := listener.Accept()
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
}

// get fetches a URL from inside of the host.
func (h *host) get(ctx context.Context, url string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = cluster.InNetns(h.netns, func() error {
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

// forgetFlows empties the connection tracking tables. Else closed connections take memory for a
// while, and a connection that was tried before there were rules keeps its port pair from being
// translated for two minutes.
func (b *bench) forgetFlows() error {
	for _, p := range b.programs() {
		err := cluster.InNetns(p.host.netns, func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
		if err != nil {
			return fmt.Errorf("connection tracking of %s's host: %w", p.name, err)
		}
	}
	return nil
}
