package httpserve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServerListensOncePortIsFree(t *testing.T) {
	blocker, err := net.Listen("tcp", "127.0.98.1:0") // other programs rarely take ports of this address
	if err != nil {
		t.Fatal(err)
	}
	addr := blocker.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	told := make(chan error, 100)
	go func() {
		defer close(done)
		Server{
			Name: "test", Addr: addr, Logger: slog.New(slog.DiscardHandler),
			OnStateChange: func(err error) { told <- err },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "here")
			}),
		}.Run(ctx)
	}()
	if err := <-told; !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("down because of %v", err)
	}
	blocker.Close()
	deadline := time.Now().Add(time.Minute)
	for {
		resp, err := http.Get("http://" + addr)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != "here" {
				t.Errorf("body %q", body)
			}
			if err := <-told; err != nil {
				t.Errorf("it serves, and says that it is down: %v", err)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not serving after the port was free: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("Run does not return")
	}
}

// The server responds to a client that never sends its request body, and closes the connection. The tests of package
// httpbound cover other slow clients.
func TestClientWithoutBodyIsDisconnected(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.98.2:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	go Server{
		Name: "test", Addr: addr, Logger: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }),
	}.Run(t.Context())
	var conn net.Conn
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.Dial("tcp", addr); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\nx")
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(answer), "here") {
		t.Errorf("%q %v", answer, err)
	}
}
