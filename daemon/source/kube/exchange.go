package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// courier carries the requests to the API server. It ends those whose answer does not come or goes
// silent, which neither HTTP/2's health check nor net/http does: a server that hangs behind a load
// balancer answers pings. It sits above the routes, one of which may take the place of another.
type courier struct {
	base http.RoundTripper

	mu   sync.Mutex
	bulk time.Time // when a piece of a list arrived last
}

func newCourier(base http.RoundTripper) http.RoundTripper { return &courier{base: base} }

// exchange is one request and its answer, as the courier saw them: client-go hides why a watch failed
// or ended. It is the answer's body, too.
type exchange struct {
	verb string
	list bool // the answer is a list, or begins with one
	// quiet is how long nothing may arrive: no answer, or nothing more of it.
	quiet time.Duration

	courier *courier
	ctx     context.Context //nolint:containedctx // the request's, which lasts until its answer ends
	cancel  context.CancelCauseFunc
	body    io.ReadCloser

	mu    sync.Mutex
	timer *time.Timer
	heard time.Time
	err   error // why there was no answer, or not all of it
}

// What ends an exchange.
var (
	errNoAnswer = errors.New("no answer in time")
	errSilent   = errors.New("nothing arrives any more")
)

type exchangeKey struct{}

// in makes the courier fill in x.
func (x *exchange) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// RoundTrip implements http.RoundTripper.
func (c *courier) RoundTrip(req *http.Request) (*http.Response, error) {
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return c.base.RoundTrip(req)
	}
	x.courier = c
	x.ctx, x.cancel = context.WithCancelCause(req.Context())
	x.expect(errNoAnswer)
	resp, err := c.base.RoundTrip(req.WithContext(x.ctx))
	x.timer.Stop()
	if err != nil {
		defer x.cancel(nil)
		return nil, x.failed(err)
	}
	x.body, resp.Body = resp.Body, x
	x.expect(errSilent)
	return resp, nil
}

// expect lets the exchange end for this reason unless something arrives in time.
func (x *exchange) expect(why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heard = time.Now()
	x.timer = time.AfterFunc(x.quiet, func() { x.check(why) })
}

// check ends an exchange that was silent for too long. On a thin link it may have to wait for a list
// that another one brings.
func (x *exchange) check(why error) {
	x.courier.mu.Lock()
	last := x.courier.bulk
	x.courier.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.heard.After(last) {
		last = x.heard
	}
	if left := x.quiet - time.Since(last); left > 0 {
		x.timer.Reset(left)
		return
	}
	x.cancel(why)
}

// ended gives why the courier ended the exchange; nil: it did not.
func (x *exchange) ended() error {
	if cause := context.Cause(x.ctx); errors.Is(cause, errNoAnswer) || errors.Is(cause, errSilent) {
		return cause
	}
	return nil
}

// failed notes why there is no answer, or no more of it.
func (x *exchange) failed(err error) error {
	if why := x.ended(); why != nil {
		err = why
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = err
	return err
}

// lost gives why there was no answer, or not all of it; nil: there was one.
func (x *exchange) lost() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// Read implements io.Reader for the answer's body. One that ends well after the courier ended the exchange was silent: over
// HTTP/1.1 a server may take the closed connection for a reason to end its answer.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if n > 0 {
		x.arrived(time.Now())
	}
	if err != nil && (!errors.Is(err, io.EOF) || x.ended() != nil) {
		err = x.failed(err)
	}
	return n, err
}

func (x *exchange) arrived(now time.Time) {
	x.mu.Lock()
	x.heard = now
	x.mu.Unlock()
	if x.list {
		x.courier.mu.Lock()
		defer x.courier.mu.Unlock()
		x.courier.bulk = now
	}
}

// Close implements io.Closer for the answer's body. client-go leaves one open whose type it does not
// know, so it may come twice.
func (x *exchange) Close() error {
	if x.body == nil {
		return nil
	}
	x.timer.Stop()
	x.cancel(nil)
	return x.body.Close()
}
