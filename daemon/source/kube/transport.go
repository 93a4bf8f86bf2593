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

// transport sends the requests of one client. The transport ends requests without an answer and answers that go
// silent. Neither HTTP/2's health check nor net/http detects the silence: a hung server behind a load balancer still
// answers pings.
type transport struct {
	base http.RoundTripper
	// prove records a connection over which the API server's certificate was verified. If certificates are not
	// verified, prove is nil.
	prove func(net.Conn)
	pause pause
	clock clock

	mu   sync.Mutex
	bulk time.Time // when a part of a list last arrived
}

// call is one request and its answer. A call records why a watch failed or ended, which client-go hides. The call is
// also the body of the answer.
type call struct {
	verb string
	list bool // the answer is a list or starts with a list

	transport *transport
	ctx       context.Context //nolint:containedctx // the context of the request, until the answer ends
	cancel    context.CancelCauseFunc
	body      io.ReadCloser

	mu sync.Mutex
	// quiet limits the time until the answer, and the time between two parts of the answer.
	quiet time.Duration
	timer *time.Timer
	heard time.Time
	// listed reports whether the list at the start of the answer has ended.
	listed bool
	err    error // why the answer is missing or incomplete
}

// bulkGap is the longest time between two parts of a list on a slow link.
const bulkGap = 10 * time.Second

// The errors with which the transport ends a call.
var (
	errNoAnswer = errors.New("no answer in time")
	errSilent   = errors.New("the connection went silent")
)

type callKey struct{}

// in returns a context whose request the transport records in c.
func (c *call) in(ctx context.Context) context.Context { return context.WithValue(ctx, callKey{}, c) }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if t.prove != nil {
		// Even behind a proxy, GotConn is called after the handshake with the API server.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { t.prove(info.Conn) },
		})
	}
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		resp, err := t.base.RoundTrip(req.WithContext(ctx))
		if err == nil {
			t.clock.note(resp)
		}
		return resp, err
	}
	c.transport = t
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.expect(errNoAnswer)
	resp, err := t.base.RoundTrip(req.WithContext(c.ctx))
	c.timer.Stop()
	if err != nil {
		defer c.cancel(nil)
		return nil, c.failed(err)
	}
	t.pause.heed(resp)
	t.clock.note(resp)
	c.body, resp.Body = resp.Body, c
	c.expect(errSilent)
	return resp, nil
}

// expect ends the call with the given error unless data arrives in time.
func (c *call) expect(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	c.timer = time.AfterFunc(c.quiet, func() { c.check(why) })
}

// endList records the end of the list, and limits the silence of the watch that follows.
func (c *call) endList(quiet time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed, c.quiet = true, quiet
	c.timer.Reset(quiet)
}

// check ends a call that was silent for too long. On a slow link, a call may have to wait while the list of another
// call arrives.
func (c *call) check(why error) {
	c.transport.mu.Lock()
	bulk := c.transport.bulk
	c.transport.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := max(c.quiet-time.Since(c.heard), bulkGap-time.Since(bulk)); left > 0 {
		c.timer.Reset(left)
		return
	}
	c.cancel(why)
}

// silentFor returns the time since data last arrived.
func (c *call) silentFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.heard)
}

// timedOut returns the error with which the transport ended the call, or nil if the transport did not end the call.
func (c *call) timedOut() error {
	if cause := context.Cause(c.ctx); errors.Is(cause, errNoAnswer) || errors.Is(cause, errSilent) {
		return cause
	}
	return nil
}

// failed records why the answer is missing or incomplete.
func (c *call) failed(err error) error {
	if why := c.timedOut(); why != nil {
		err = why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return err
}

// lost returns why the answer is missing or incomplete, or nil if the answer is complete.
func (c *call) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Read implements io.Reader for the body of the answer. A body that ends normally after the transport ended the call
// was silent: an HTTP/1.1 server may end its answer because the connection was closed.
func (c *call) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if n > 0 {
		c.arrived(time.Now())
	}
	if err != nil && (!errors.Is(err, io.EOF) || c.timedOut() != nil) {
		err = c.failed(err)
	}
	return n, err
}

func (c *call) arrived(at time.Time) {
	c.mu.Lock()
	c.heard = at
	bulk := c.list && !c.listed
	c.mu.Unlock()
	if bulk {
		c.transport.mu.Lock()
		defer c.transport.mu.Unlock()
		c.transport.bulk = at
	}
}

// Close implements io.Closer for the body of the answer. A second call is possible, because client-go leaves a body of
// an unknown type open.
func (c *call) Close() error {
	if c.body == nil {
		return nil
	}
	c.timer.Stop()
	c.cancel(nil)
	return c.body.Close()
}
