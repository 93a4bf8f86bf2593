package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// route is the way to one API server with one set of credentials.
type route struct {
	host      string   // as the kubeconfig has it
	cas       []string // see Source.CAs
	server    *url.URL
	transport http.RoundTripper
	// prove notes a connection over which the API server's certificate was verified; nil if it is not.
	prove func(net.Conn)
	// replaced ends when another route is in force.
	replaced context.Context //nolint:containedctx // it is the life of the route
	replace  context.CancelFunc
}

// anyServer stands in the URLs of the REST clients for the server of the route.
const anyServer = "api-server.invalid"

// host is the URL of the API server as the kubeconfig has it.
func (c *client) host() string { return c.route.Load().host }

// use makes a route of the config and puts it in force: new requests take it, and watches on the previous
// one end, so that the feeds go on by the new one where they stopped. Lists are left to finish.
func (c *client) use(config *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("server %s: %w", config.Host, err)
	}
	config = rest.CopyConfig(config)
	config.Dial = contained(c.dialer.DialContext)
	config.Wrap(pingOften)
	transport, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("make transport: %w", err)
	}
	next := &route{host: config.Host, cas: fingerprints(config.CAData), server: server, transport: transport}
	next.prepare(c.dialer)
	next.replaced, next.replace = context.WithCancel(context.Background())
	if old := c.route.Swap(next); old != nil {
		old.replace()
		if t := innermost(old.transport); t != nil {
			t.CloseIdleConnections()
		}
	}
	return nil
}

// prepare has the dialer make the connections of the transport, and sets what proves an address.
func (r *route) prepare(d *dialer) {
	t := innermost(r.transport)
	if t == nil {
		return
	}
	peers := []*url.URL{r.server}
	if t.Proxy != nil {
		// If the proxy's URL is invalid, each request fails with this error.
		if proxy, err := t.Proxy(&http.Request{URL: r.server}); err == nil && proxy != nil {
			peers = append(peers, proxy)
		}
	}
	d.addrs.configure(peers)
	secure, direct := r.server.Scheme == "https", len(peers) == 1
	if secure && direct {
		t.DialTLSContext = contained(d.dialTLS(t))
	}
	verified := secure && (t.TLSClientConfig == nil || !t.TLSClientConfig.InsecureSkipVerify)
	d.tunnels.use(verified && !direct)
	if verified {
		r.prove = d.prove
	}
}

// trace has prove see the connection of a request. At a proxy it is called after the handshake with the API server, too.
func (r *route) trace(ctx context.Context) context.Context {
	if r.prove == nil {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { r.prove(info.Conn) },
	})
}

// RoundTrip implements http.RoundTripper for the REST clients.
func (c *client) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		r := c.route.Load()
		resp, err := r.send(req)
		if err != nil && r.replaced.Err() != nil && req.Context().Err() == nil {
			continue // its failure says nothing about the new one
		}
		if err == nil {
			c.holds.heed(r.server.Host, resp)
		}
		if isRefusal(resp, err) {
			select {
			case c.refused <- struct{}{}:
			default:
			}
		}
		return resp, err
	}
}

func (r *route) send(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := func() bool { return true }
	if req.URL.Query().Get("watch") != "" {
		stop = context.AfterFunc(r.replaced, func() { cancel(errReplaced) })
	}
	out := req.Clone(r.trace(ctx))
	out.URL.Scheme, out.URL.Host, out.Host = r.server.Scheme, r.server.Host, ""
	out.URL.Path = strings.TrimSuffix(r.server.Path, "/") + req.URL.Path
	resp, err := r.transport.RoundTrip(out)
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	resp.Body = &answerBody{resp.Body, ctx, func() { stop(); cancel(nil) }}
	return resp, nil
}

var errReplaced = errors.New("the route has been replaced")

// answerBody is that of a route's answer.
type answerBody struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // of the request that it answers
	release func()
}

// Read ends a watch in order, not with an error, when its route has been replaced.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && errors.Is(context.Cause(b.ctx), errReplaced) {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

// isRefusal reports whether new credentials may help. An API server that lets everybody in as anonymous
// answers 403 where others answer 401.
func isRefusal(resp *http.Response, err error) bool {
	if err == nil {
		return resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
	}
	var (
		unverified *tls.CertificateVerificationError
		noTLS      tls.RecordHeaderError
		alert      *net.OpError
	)
	return errors.As(err, &unverified) || errors.As(err, &noTLS) ||
		errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error")
}
