package e2e

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"edgeway/test/e2e/cluster"
)

// faultProxy is an HTTP proxy between a daemon and the API server. The proxy can simulate faults of the API server, or
// of another proxy in front of the API server. Even during a fault, the proxy supports HTTP/2 and responds to pings.
type faultProxy struct {
	*lab
	server   *httptest.Server
	pass     http.Handler
	requests atomic.Int64

	mu    sync.Mutex
	fault *fault        // nil if there is no fault
	turn  chan struct{} // closed when a fault begins or ends
}

// fault describes how the proxy misbehaves. With the zero value, the proxy forwards requests and responses unchanged.
type fault struct {
	// answer writes a response that replaces the API server's response. To get the API server's response, answer can
	// call pass. If answer is nil, the proxy forwards the API server's response.
	answer func(w http.ResponseWriter, r *http.Request, pass http.Handler)
	// If mute is true, the proxy stops sending responses in progress, and sends only the headers of new responses.
	mute bool
	// delay is the time that the proxy waits before it forwards each request and each fragment of a response.
	delay time.Duration
	// If drop is true, the gateway drops all packets to and from the proxy.
	drop bool
}

func newFaultProxy(l *lab) *faultProxy {
	l.t.Helper()
	config := sharedState.cluster.Config(cluster.Edgeway)
	config.BearerToken = "" // the proxy forwards the daemon's token instead
	transport, err := rest.TransportFor(config)
	l.must(err)
	target, err := url.Parse(sharedState.cluster.Server())
	l.must(err)
	p := &faultProxy{lab: l, turn: make(chan struct{})}
	p.pass = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.EnableHTTP2 = true
	_ = p.server.Listener.Close()
	l.must(l.net.Gateway.Do(func() (err error) {
		p.server.Listener, err = net.Listen("tcp", "192.0.2.1:0")
		return err
	}))
	p.server.StartTLS()
	l.t.Cleanup(func() {
		p.setFault(nil)
		_ = p.server.Config.Close() // httptest's Close would wait for hung responses
	})
	return p
}

func (p *faultProxy) kubeconfig(path string) {
	p.t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	p.must(err)
	for _, c := range config.Clusters {
		c.Server = p.server.URL
		c.TLSServerName = "example.com" // httptest's certificate has this name
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{
			Type:  "CERTIFICATE",
			Bytes: p.server.Certificate().Raw,
		})
	}
	p.must(clientcmd.WriteToFile(*config, path))
}

// setFault replaces the current fault with f, or ends the fault if f is nil. If f.answer is set, setFault cuts off
// responses in progress.
func (p *faultProxy) setFault(f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dropped := p.fault != nil && p.fault.drop
	p.fault = f
	close(p.turn)
	p.turn = make(chan struct{})
	port := netip.MustParseAddrPort(p.server.Listener.Addr().String()).Port()
	switch {
	case f != nil && f.drop:
		p.onGateway("nft", fmt.Sprintf("table ip hole { chain in { type filter hook input priority 0; tcp dport %[1]d drop; }; "+
			"chain out { type filter hook output priority 0; tcp sport %[1]d drop; }; }", port))
	case dropped:
		p.onGateway("nft", "delete table ip hole")
	}
}

func (p *faultProxy) onGateway(name string, args ...string) {
	p.t.Helper()
	out, err := p.net.Gateway.Command(cleanupContext(), name, args...).CombinedOutput()
	if err != nil {
		p.t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}

func (p *faultProxy) now() (f fault, turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		f = *p.fault
	}
	return f, p.turn
}

func (p *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	f, turn := p.now()
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	switch {
	case f.answer != nil:
		f.answer(w, r, p.pass)
		return
	case f.mute: // a watch has the same headers
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-turn:
			if f, _ := p.now(); f.answer != nil {
				cancel()
			}
		}
	}()
	p.pass.ServeHTTP(&outgoing{w, p, ctx}, r.WithContext(ctx))
}

type outgoing struct {
	http.ResponseWriter
	proxy *faultProxy
	ctx   context.Context //nolint:containedctx // the context of the request
}

// Unwrap lets http.ResponseController find the wrapped writer.
func (o *outgoing) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *outgoing) Write(b []byte) (int, error) {
	f, _ := o.proxy.now()
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	if f.mute {
		<-o.ctx.Done()
		return 0, http.ErrAbortHandler
	}
	return o.ResponseWriter.Write(b)
}
