package kube

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// TestMain removes client-go's error handlers, because they delay every reflector in the process. The handlers also
// remember the time of the last error, and that time may come from another synctest bubble.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	m.Run()
}

// pipeListener is a listener whose connections use no network, so tests can use it in a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, errors.New("closed")
	}
}

func (p *pipeListener) Close() error   { close(p.done); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubble runs a source and a fake API server in a synctest bubble, where hours of waiting take no real time. After
// the source has listed all resources and each feed watches or waits, inBubble calls test.
func inBubble(t *testing.T, prepare func(*fakeAPI), test func(t *testing.T, api *fakeAPI, r *runningSource)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := unstarted(t)
		if prepare != nil {
			prepare(api)
		}
		l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(api.serve)}
		go server.Serve(l)
		transport := &http.Transport{DialContext: l.dial}
		r := &runningSource{memory: newMemory(), log: new(lockedBuffer)}
		r.Source = newSource(Options{Logger: slog.New(slog.NewTextHandler(r.log, nil))}, labels.Everything())
		c, err := newClient(&rest.Config{Host: "http://api", Transport: transport}, r.dialer)
		if err != nil {
			t.Fatal(err)
		}
		r.client.Store(c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan *client, 1)
		go func() { done <- r.read(ctx, r.memory) }()
		defer func() {
			canceled := time.Now()
			cancel()
			if <-done; time.Since(canceled) > time.Second {
				t.Errorf("the source ended %s after its context", time.Since(canceled))
			}
			server.Close()
			transport.CloseIdleConnections()
		}()
		<-r.memory.synced
		synctest.Wait()
		test(t, api, r)
	})
}
