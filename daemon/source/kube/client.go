package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// client holds one REST client for each API group that is read; they share their connections.
type client struct {
	host                        string
	dialer                      *dialer
	params                      runtime.ParameterCodec
	core, discovery, networking rest.Interface
}

func newClient(config *rest.Config) (*client, error) {
	scheme := newScheme()
	c := &client{host: config.Host, dialer: newDialer(config.Host), params: runtime.NewParameterCodec(scheme)}

	config = rest.CopyConfig(config)
	config.Dial = c.dialer.DialContext
	config.Wrap(pingOften)
	config.Wrap(newCourier)
	config.QPS = -1 // the pace of each feed is the limit
	config.WarningHandler = rest.NoWarnings{}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make transport: %w", err)
	}
	for _, group := range []struct {
		client  *rest.Interface
		gv      schema.GroupVersion
		apiPath string
	}{
		{&c.core, corev1.SchemeGroupVersion, "/api"},
		{&c.discovery, discoveryv1.SchemeGroupVersion, "/apis"},
		{&c.networking, networkingv1.SchemeGroupVersion, "/apis"},
	} {
		config := rest.CopyConfig(config)
		config.GroupVersion, config.APIPath = &group.gv, group.apiPath
		if *group.client, err = rest.RESTClientForConfigAndClient(config, transport); err != nil {
			return nil, fmt.Errorf("make client for %s: %w", group.gv, err)
		}
	}
	return c, nil
}

// newScheme knows the objects that are read, and no others.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion} {
		metav1.AddToGroupVersion(scheme, gv)
	}
	return scheme
}

// A connection on which nothing arrives for pingAfter is tested, and closed when the test is not
// answered for pingTimeout. client-go's own values (30 and 15 s) can be changed only for the whole process.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// pingOften sets the HTTP/2 health check of the transport that client-go made. It runs before the
// transport's first request; client-go may hand the same one out again, already set.
func pingOften(rt http.RoundTripper) http.RoundTripper {
	inner := rt
	for {
		w, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = w.WrappedRoundTripper()
	}
	if t, ok := inner.(*http.Transport); ok && t.HTTP2 == nil {
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	}
	return rt
}

// dialer notes the addresses that the API server has, and has the kernel test idle connections too, for
// API servers and proxies that speak only HTTP/1.1.
type dialer struct {
	net.Dialer
	// changed has a mark after addrs has grown.
	changed chan struct{}
	mu      sync.Mutex
	addrs   []netip.Addr // sorted
}

func newDialer(host string) *dialer {
	d := &dialer{
		Dialer: net.Dialer{
			Timeout:         10 * time.Second,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingTimeout / 2, Count: 2},
		},
		changed: make(chan struct{}, 1),
	}
	if u, err := url.Parse(host); err == nil {
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			d.note(a)
		}
	}
	return d
}

// DialContext is net.Dialer's. It notes all addresses that the name stands for, those that are not tried too: the
// next connection may use another one.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSDone: func(done httptrace.DNSDoneInfo) {
			for _, a := range done.Addrs {
				if addr, ok := netip.AddrFromSlice(a.IP); ok {
					d.note(addr)
				}
			}
		},
	}), network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		d.note(tcp.AddrPort().Addr())
	}
	return conn, nil
}

func (d *dialer) note(a netip.Addr) {
	a = a.Unmap().WithZone("")
	d.mu.Lock()
	defer d.mu.Unlock()
	i, found := slices.BinarySearchFunc(d.addrs, a, netip.Addr.Compare)
	if found {
		return
	}
	d.addrs = slices.Insert(slices.Clone(d.addrs), i, a)
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// seen gives the addresses, which the caller must not write to.
func (d *dialer) seen() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.addrs
}
