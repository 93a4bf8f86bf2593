package e2e

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"edgeway/test/netlab"
)

// link carries the daemon's connections to the API server and can fail like a real network. A cut link rejects
// connections. If a link stalls, its open connections go silent forever, as when a NAT gateway loses its state, but new
// connections work.
type link struct {
	listener net.Listener
	target   string
	// name is the link's host name in the kubeconfig, or "" if the kubeconfig contains the link's address.
	name string
	// proxy reports whether the link's listener is an HTTP proxy. If proxy is true, the kubeconfig names both the proxy
	// and the API server.
	proxy bool

	mu    sync.Mutex
	isCut bool
	pairs map[*pair]struct{}
}

// pair holds the two halves of a connection through the link.
type pair struct {
	near, far net.Conn
	mu        sync.Mutex // stall locks mu and never unlocks it
}

func newLink(l *lab) *link { return newLinkFrom(l, l.net.Gateway) }

func newLinkFrom(l *lab, h *netlab.Host) *link {
	l.t.Helper()
	return newLinkAt(l, h, 0)
}

func newLinkAt(l *lab, h *netlab.Host, port int) *link {
	l.t.Helper()
	k := &link{pairs: map[*pair]struct{}{}}
	l.must(h.Do(func() (err error) {
		k.listener, err = net.Listen("tcp", net.JoinHostPort(h.Addrs[0].String(), strconv.Itoa(port)))
		return err
	}))
	server, err := url.Parse(sharedState.cluster.Server())
	l.must(err)
	k.target = server.Host
	go k.accept()
	l.t.Cleanup(func() {
		_ = k.listener.Close()
		k.cut()
	})
	return k
}

func (k *link) kubeconfig(l *lab, user, path string) {
	l.t.Helper()
	k.writeKubeconfig(l, sharedState.cluster.Kubeconfig(user), path)
}

// writeKubeconfig copies a kubeconfig to path, and configures the copy to use the link.
func (k *link) writeKubeconfig(l *lab, kubeconfig, path string) {
	l.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	l.must(err)
	begin := k.listener.Addr().String()
	if k.name != "" {
		begin = net.JoinHostPort(k.name, strconv.Itoa(k.port()))
	}
	for _, c := range config.Clusters {
		if k.proxy {
			c.ProxyURL = "http://" + begin
			continue
		}
		server, err := url.Parse(c.Server)
		l.must(err)
		c.TLSServerName = server.Hostname()
		server.Host = begin
		c.Server = server.String()
	}
	l.must(clientcmd.WriteToFile(*config, path))
}

func (k *link) port() int { return k.listener.Addr().(*net.TCPAddr).Port }

// cut closes the link's connections, and makes the link reject new connections.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = true
	for p := range k.pairs {
		p.close()
	}
}

func (k *link) restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = false
}

// stall silences all open connections in both directions, and returns the number of silenced connections.
func (k *link) stall() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pairs {
		p.mu.Lock() // mu is never unlocked, so the goroutine that copies data blocks forever
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
		far, err := sharedState.cluster.Dial(context.Background(), "tcp", k.target)
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
			go k.open(p)
		}
		k.mu.Unlock()
	}
}

func (k *link) open(p *pair) {
	if k.proxy {
		// The proxy ignores the target of the CONNECT request, because the daemon connects only to the API server.
		request := bufio.NewReader(p.near)
		if _, err := http.ReadRequest(request); err != nil || request.Buffered() > 0 {
			p.close()
			return
		}
		if _, err := io.WriteString(p.near, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			p.close()
			return
		}
	}
	go k.carry(p, p.near, p.far)
	k.carry(p, p.far, p.near)
}

func (k *link) carry(p *pair, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock() // Lock blocks if the connection is stalled
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
