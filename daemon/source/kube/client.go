package kube

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"edgeway/daemon/source/api"
)

// client holds one REST client for each API group that is read; they share their connections. The clients
// live as long as the source; where their requests go, and as whom, is the route's, which can be replaced.
type client struct {
	dialer                      *dialer
	params                      runtime.ParameterCodec
	core, discovery, networking rest.Interface
	route                       atomic.Pointer[route]
	holds                       holds
	// refused has a mark after the API server has not accepted us, or we have not accepted it.
	refused chan struct{}
}

func newClient(config *rest.Config, o Options) (*client, error) {
	scheme := runtime.NewScheme()
	api.AddTo(scheme)
	c := &client{dialer: newDialer(o), params: runtime.NewParameterCodec(scheme), refused: make(chan struct{}, 1)}
	if err := c.use(config); err != nil {
		return nil, err
	}
	config = &rest.Config{
		Host:           "http://" + anyServer,
		QPS:            -1, // the pace of each feed is the limit
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
			ContentType:          runtime.ContentTypeProtobuf,
			AcceptContentTypes:   runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
	transport := &http.Client{Transport: newCourier(c)}
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
		if *group.client, err = rest.RESTClientForConfigAndClient(config, transport); err != nil {
			return nil, fmt.Errorf("make client for %s: %w", group.gv, err)
		}
	}
	return c, nil
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
	if t := innermost(rt); t != nil && t.HTTP2 == nil {
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	}
	return rt
}

// innermost gives the transport that client-go has wrapped; nil: it is of another type.
func innermost(rt http.RoundTripper) *http.Transport {
	for {
		w, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			t, _ := rt.(*http.Transport)
			return t
		}
		rt = w.WrappedRoundTripper()
	}
}
