package kube

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{min: time.Second, max: 10 * time.Second}
		wait := func() time.Duration {
			before := time.Now()
			if err := p.wait(context.Background()); err != nil {
				t.Fatal(err)
			}
			return time.Since(before)
		}
		if d := wait(); d != 0 {
			t.Errorf("the first request waits %s", d)
		}
		for i, gap := range []time.Duration{1, 2, 4, 8, 10, 10} {
			gap *= time.Second
			if d := wait(); d < gap || d > gap*3/2 {
				t.Errorf("request %d waits %s, want %s and up to half more", i+2, d, gap)
			}
		}
		time.Sleep(quietTime + time.Second)
		if d := wait(); d != 0 {
			t.Errorf("after a quiet time a request waits %s", d)
		}
		if d := wait(); d > 1500*time.Millisecond {
			t.Errorf("after a quiet time the gap is %s", d)
		}
		p.delay(time.Hour, time.Minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.wait(ctx); err == nil {
			t.Error("a delayed request starts")
		}
		time.Sleep(2 * time.Hour)
		var earliest, latest time.Duration
		for range 100 {
			p.delay(time.Minute, 15*time.Second)
			d := wait()
			if earliest == 0 || d < earliest {
				earliest = d
			}
			latest = max(latest, d)
		}
		if earliest < time.Minute || latest > 75*time.Second || latest-earliest < 5*time.Second {
			t.Errorf("requests that are delayed by a minute start after %s to %s", earliest, latest)
		}
		time.Sleep(time.Minute)
		p.delay(time.Minute, 15*time.Second)
		p.delay(0, time.Second)
		if d := wait(); d < time.Minute {
			t.Errorf("a request that is delayed by a minute and spread over a second starts after %s", d)
		}
	})
}

// silentProxy is a TCP proxy that can stop forwarding data without closing the connections.
type silentProxy struct {
	net.Listener
	target string
	// epoch increases when the connections go silent.
	epoch atomic.Int64
}

func newSilentProxy(t *testing.T, target string) *silentProxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &silentProxy{Listener: l, target: target}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				conn.Close()
				continue
			}
			t.Cleanup(func() { conn.Close(); out.Close() })
			epoch := h.epoch.Load()
			go h.copyData(out, conn, epoch)
			go h.copyData(conn, out, epoch)
		}
	}()
	return h
}

// copyData copies data until the epoch changes, and then discards further data.
func (h *silentProxy) copyData(to io.Writer, from io.Reader, epoch int64) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if h.epoch.Load() == epoch {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// If the network drops all packets, the HTTP/2 health check detects the broken connection. The watch continues without
// a new list.
func TestBlackHoleIsDetected(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.EnableHTTP2 = true
	api.StartTLS()
	api.put("services", "a", clusterIP(1))
	h := newSilentProxy(t, api.Listener.Addr().String())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	r := start(t, fmt.Sprintf("https://%s", h.Addr()),
		", certificate-authority-data: "+base64.StdEncoding.EncodeToString(ca), nil)
	r.waitSynced(t, 30*time.Second)
	time.Sleep(1200 * time.Millisecond)
	h.epoch.Add(1)
	api.put("services", "b", clusterIP(2))
	eventually(t, "b arrives by a new connection", 30*time.Second, func() bool { return r.names() == "a b" })
	if n := api.count("services", "list", "stream"); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
}

func TestUntrustedServerError(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	api.StartTLS()
	r := start(t, api.URL, "", nil)
	eventually(t, "the status names the certificate", 30*time.Second, func() bool {
		return r.Status().Fault.Message == fmt.Sprintf("list services from %s: tls: failed to verify certificate: x509: certificate signed by unknown authority", api.URL)
	})
}
