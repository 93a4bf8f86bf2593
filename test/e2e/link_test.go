package e2e

import (
	"context"
	"net"
	"net/url"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
)

// link carries the daemon's connections to the API server, and breaks as real networks do: cut
// (nobody answers the door) or stalled (what is open goes silent for ever, as after a NAT gateway
// forgot it, while new connections work).
type link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	isCut bool
	pairs map[*pair]struct{}
}

// pair is one connection through the link.
type pair struct {
	near, far net.Conn
	mu        sync.Mutex // held for ever by stall
}

// newLink opens a link that begins at the gateway.
func newLink(l *lab) *link {
	l.t.Helper()
	k := &link{pairs: map[*pair]struct{}{}}
	l.must(l.net.Gateway.Do(func() (err error) {
		k.listener, err = net.Listen("tcp", "192.0.2.1:0")
		return err
	}))
	server, err := url.Parse(shared.cluster.Server())
	l.must(err)
	k.target = server.Host
	go k.accept()
	l.t.Cleanup(func() {
		_ = k.listener.Close()
		k.cut()
	})
	return k
}

// kubeconfig writes the kubeconfig of a user who comes by the link to path.
func (k *link) kubeconfig(l *lab, user, path string) {
	l.t.Helper()
	config, err := clientcmd.LoadFromFile(shared.cluster.Kubeconfig(user))
	l.must(err)
	for _, c := range config.Clusters {
		server, err := url.Parse(c.Server)
		l.must(err)
		c.TLSServerName = server.Hostname()
		server.Host = k.listener.Addr().String()
		c.Server = server.String()
	}
	l.must(clientcmd.WriteToFile(*config, path))
}

// cut ends all connections and refuses new ones.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = true
	for p := range k.pairs {
		p.close()
	}
}

// mend ends cut.
func (k *link) mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = false
}

// stall makes all connections that are open now go silent in both directions. It gives their number.
func (k *link) stall() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pairs {
		p.mu.Lock() // never unlocked: what carries the bytes stops in the middle
	}
	n := len(k.pairs)
	k.pairs = map[*pair]struct{}{}
	return n
}

func (k *link) accept() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return
		}
		far, err := shared.cluster.Dial(context.Background(), "tcp", k.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p := &pair{near: near, far: far}
		k.mu.Lock()
		if k.isCut {
			p.close()
		} else {
			k.pairs[p] = struct{}{}
			go k.carry(p, near, far)
			go k.carry(p, far, near)
		}
		k.mu.Unlock()
	}
}

func (k *link) carry(p *pair, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock() // a stalled pair stays here
		_, werr := to.Write(buf[:n])
		p.mu.Unlock()
		if err != nil || werr != nil {
			break
		}
	}
	p.close()
	k.mu.Lock()
	delete(k.pairs, p)
	k.mu.Unlock()
}

func (p *pair) close() {
	_ = p.near.Close()
	_ = p.far.Close()
}
