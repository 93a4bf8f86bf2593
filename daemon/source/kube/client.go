package kube

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"edgeway/daemon/source/api"
	"edgeway/daemon/source/kube/dialer"
)

// client sends requests to the API server, using one version of the kubeconfig. A client has a REST client for each API
// group that Edgeway reads. The REST clients share their connections.
type client struct {
	host      string            // the server's URL as written in the kubeconfig
	cas       []string          // see Source.Cluster
	digest    [sha256.Size]byte // the checksum of the kubeconfig; see access
	server    *url.URL
	transport *transport
	params    runtime.ParameterCodec
	dialer    *dialer.Dialer
	// peers lists the URL of the server and, if a proxy is used, the URL of the proxy.
	peers []*url.URL

	core, discovery, networking rest.Interface
}

func newClient(config *rest.Config, d *dialer.Dialer) (*client, error) {
	scheme := runtime.NewScheme()
	api.AddToScheme(scheme)
	c := &client{
		host: config.Host, cas: fingerprints(config.CAData), dialer: d,
		params: runtime.NewParameterCodec(scheme),
	}
	if err := c.makeTransport(config); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // each feed limits its own requests
	config.WarningHandler = rest.NoWarnings{}
	config.ContentConfig = rest.ContentConfig{
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
		ContentType:          runtime.ContentTypeProtobuf,
		AcceptContentTypes:   runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}
	var err error
	for _, group := range []struct {
		client  *rest.Interface
		gv      schema.GroupVersion
		apiPath string
	}{
		{&c.core, api.Core(), "/api"},
		{&c.discovery, api.Discovery(), "/apis"},
		{&c.networking, api.Networking(), "/apis"},
	} {
		config := rest.CopyConfig(config)
		config.GroupVersion, config.APIPath = &group.gv, group.apiPath
		*group.client, err = rest.RESTClientForConfigAndClient(config, &http.Client{Transport: c.transport})
		if err != nil {
			return nil, fmt.Errorf("create client for %s: %w", group.gv, err)
		}
	}
	return c, nil
}

// makeTransport creates a transport that connects through the dialer.
func (c *client) makeTransport(config *rest.Config) (err error) {
	if c.server, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return fmt.Errorf("server %s: %w", config.Host, err)
	}
	config = rest.CopyConfig(config)
	config.Dial = c.dialer.DialContext
	config.Wrap(configurePings)
	base, err := rest.TransportFor(config)
	if err != nil {
		if config.Insecure {
			// client-go rejects a kubeconfig that has both a certificate authority and insecure-skip-tls-verify.
			err = fixable("remove insecure-skip-tls-verify", err)
		}
		return fmt.Errorf("create transport: %w", err)
	}
	c.transport = &transport{base: base}
	c.peers = []*url.URL{c.server}
	t := innermostTransport(base)
	if t == nil {
		return nil
	}
	if t.Proxy != nil {
		// makeTransport ignores the error for an invalid proxy URL, because each request later returns the same error.
		if proxy, err := t.Proxy(&http.Request{URL: c.server}); err == nil && proxy != nil {
			c.peers = append(c.peers, proxy)
		}
	}
	if c.server.Scheme != "https" {
		return nil
	}
	if !c.byProxy() {
		t.DialTLSContext = c.dialer.DialTLS(t)
	}
	if t.TLSClientConfig == nil || !t.TLSClientConfig.InsecureSkipVerify {
		c.transport.prove = c.dialer.Prove
	}
	return nil
}

func (c *client) byProxy() bool { return len(c.peers) > 1 }

func (c *client) begin() {
	c.dialer.Configure(c.peers, c.transport.prove != nil)
}

func (c *client) end() {
	if t := innermostTransport(c.transport.base); t != nil {
		t.CloseIdleConnections()
	}
}

// configurePings configures the HTTP/2 health check of a client-go transport before its first request, with the same
// timeouts as the TCP keep-alive probes. A program can change client-go's own timeouts (30 and 15 s) only for the whole
// process. If client-go returns the same transport again, configurePings does nothing.
func configurePings(rt http.RoundTripper) http.RoundTripper {
	if t := innermostTransport(rt); t != nil && t.HTTP2 == nil {
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: dialer.PingAfter, PingTimeout: dialer.PingTimeout}
	}
	return rt
}

// innermostTransport returns the transport that client-go has wrapped, or nil if the innermost transport is not an
// *http.Transport.
func innermostTransport(rt http.RoundTripper) *http.Transport {
	for {
		w, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			t, _ := rt.(*http.Transport)
			return t
		}
		rt = w.WrappedRoundTripper()
	}
}
