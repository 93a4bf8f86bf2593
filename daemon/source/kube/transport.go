package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// transport sends one client's requests, and cancels a request if the response is late or stalls. Neither the HTTP/2
// health check nor net/http detects a stalled response, because a load balancer in front of a hung server still answers
// pings.
type transport struct {
	base http.RoundTripper
	// prove records a connection after net/http has verified the API server's certificate. prove is nil if the client
	// does not verify certificates.
	prove func(net.Conn)
	pause pause
	clock clock

	mu   sync.Mutex
	bulk time.Time // the time when list data was last received
}

// call holds one request and the body of its response. A call records why a watch failed or ended, because client-go
// hides the reason.
type call struct {
	verb string
	list bool // whether the response is a list or starts with a list

	transport *transport
	ctx       context.Context //nolint:containedctx // the context of the request, until the response ends
	cancel    context.CancelCauseFunc
	body      io.ReadCloser

	mu sync.Mutex
	// maxSilence is the longest time that the call waits for the response to start or for more of its data.
	maxSilence time.Duration
	timer      *time.Timer
	heard      time.Time
	// listComplete reports whether the list at the start of the response is complete.
	listComplete bool
	err          error
}

// bulkGap is the longest time between two reads of a list on a slow link.
const bulkGap = 10 * time.Second

var (
	errNoAnswer = errors.New("no answer in time")
	errSilent   = errors.New("the connection went silent")
)

type callKey struct{}

// withContext returns a context that makes the transport record the request in c.
func (c *call) withContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, began := req.Context(), time.Now()
	if t.prove != nil {
		// Even behind a proxy, net/http calls GotConn after the TLS handshake with the API server.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { t.prove(info.Conn) },
		})
	}
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		resp, err := t.base.RoundTrip(req.WithContext(ctx))
		if err == nil {
			t.clock.note(resp, began)
		}
		return resp, err
	}
	c.transport = t
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.limitSilence(errNoAnswer)
	resp, err := t.base.RoundTrip(req.WithContext(c.ctx))
	c.timer.Stop()
	if err != nil {
		defer c.cancel(nil)
		return nil, c.failed(err)
	}
	t.pause.heed(resp)
	t.clock.note(resp, began)
	c.body, resp.Body = resp.Body, c
	c.limitSilence(errSilent)
	return resp, nil
}

// limitSilence cancels the call, with why as the cause, if the call receives no data for maxSilence.
func (c *call) limitSilence(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	c.timer = time.AfterFunc(c.maxSilence, func() { c.cancelIfSilent(why) })
}

// endList records the end of the list, and sets maxSilence to the value of quiet for the watch that follows.
func (c *call) endList(quiet time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listComplete, c.maxSilence = true, quiet
	c.timer.Reset(quiet)
}

// cancelIfSilent cancels a call that has been silent for too long. On a slow link, a call continues to wait while
// another call receives a list.
func (c *call) cancelIfSilent(why error) {
	c.transport.mu.Lock()
	bulk := c.transport.bulk
	c.transport.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := max(c.maxSilence-time.Since(c.heard), bulkGap-time.Since(bulk)); left > 0 {
		c.timer.Reset(left)
		return
	}
	c.cancel(why)
}

func (c *call) silentFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.heard)
}

// timeoutError returns the error that the transport cancelled the call with, or nil if the transport did not cancel it.
func (c *call) timeoutError() error {
	if cause := context.Cause(c.ctx); errors.Is(cause, errNoAnswer) || errors.Is(cause, errSilent) {
		return cause
	}
	return nil
}

func (c *call) failed(err error) error {
	if why := c.timeoutError(); why != nil {
		err = why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return err
}

// incompleteError returns the reason why the response is missing or incomplete, or nil if the response is complete.
func (c *call) incompleteError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Read implements io.Reader for the response body. If the transport cancelled the call, even a normal end of the body
// is an error, because an HTTP/1.1 server may end the response by closing the connection.
func (c *call) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if n > 0 {
		c.arrived(time.Now())
	}
	if err != nil && (!errors.Is(err, io.EOF) || c.timeoutError() != nil) {
		err = c.failed(err)
	}
	return n, err
}

func (c *call) arrived(at time.Time) {
	c.mu.Lock()
	c.heard = at
	bulk := c.list && !c.listComplete
	c.mu.Unlock()
	if bulk {
		c.transport.mu.Lock()
		defer c.transport.mu.Unlock()
		c.transport.bulk = at
	}
}

// Close implements io.Closer for the response body. A caller may call Close twice. After a failed watch, the session
// also calls Close, because client-go does not close a response body of an unknown content type.
func (c *call) Close() error {
	if c.body == nil {
		return nil
	}
	c.timer.Stop()
	c.cancel(nil)
	return c.body.Close()
}
