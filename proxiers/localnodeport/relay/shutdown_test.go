package relay

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"
)

func TestShutdownWaits(t *testing.T) {
	r, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, echo)}})
	c := dialTCP(t, addr)
	exchange(t, c, "x")
	var ended sync.WaitGroup
	var err error
	ended.Go(func() { err = r.Shutdown(context.Background()) })
	time.Sleep(100 * time.Millisecond)
	exchange(t, c, "y")
	c.Close()
	ended.Wait()
	if err != nil {
		t.Error(err)
	}
	f, err := listen(t, "127.0.0.1:0").File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := r.Serve(f, &pool{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

func TestShutdownResets(t *testing.T) {
	r, p, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, echo)}})
	c := dialTCP(t, addr)
	exchange(t, c, "x")
	if err := r.Shutdown(done()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	expectReset(t, c)
	p.Stop()
}

func TestShutdownDuringDial(t *testing.T) {
	target := &pool{endpoints: []netip.AddrPort{fullListener(t)}}
	r, _, addr := relayTo(t, Options{DialTimeout: time.Minute}, target)
	c := dialTCP(t, addr)
	for r.Stats().Active == 0 {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	if err := r.Shutdown(done()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	expectReset(t, c)
	if got := target.failures(); len(got) != 0 {
		t.Errorf("the endpoint is blamed: %v", got)
	}
}
