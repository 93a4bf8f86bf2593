package kube

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
)

// A panic in any of the source's goroutines ends Run, even during the first list. After a restart, Run removes the
// objects that the API server no longer has, and keeps all other objects.
func TestRunAfterPanic(t *testing.T) {
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	api.put("services", "b", clusterIP(2))
	var runs atomic.Int32
	r := prepare(t, api.URL, "", func(o *Options) {
		o.KnownAddrs = func() []source.ServerAddr {
			if runs.Add(1) == 1 {
				panic("on purpose")
			}
			return nil
		}
	})
	run := func(ctx context.Context) error {
		return contain.Call(func() error { return r.Source.Run(ctx, r.memory) })
	}
	if err := run(t.Context()); !contain.IsPanic(err) || !strings.Contains(err.Error(), "on purpose") {
		t.Fatalf("the first Run ends with %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- run(t.Context()) }()
	eventually(t, "both Services", 30*time.Second, func() bool { return r.names() == "a b" })
	r.Source.contain(func() { panic("later") })
	if err := <-done; !contain.IsPanic(err) {
		t.Fatalf("the second Run ends with %v", err)
	}
	api.remove("services", "a")
	api.put("services", "c", clusterIP(3))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- run(ctx) }()
	eventually(t, "what changed meanwhile", 30*time.Second, func() bool { return r.names() == "b c" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServiceThatPanicsIsRefused(t *testing.T) {
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "bad", clusterIP(1))
	api.put("services", "good", clusterIP(2))
	r := start(t, api.URL, "", func(o *Options) {
		o.BeforeConvert = func(key source.Key) {
			if key.Name == "bad" {
				panic("on purpose")
			}
		}
	})
	eventually(t, "both Services", 30*time.Second, func() bool { return r.names() == "bad good" })
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	for key, obj := range r.memory.objects {
		if problems := obj.Problems(); len(problems) > 0 != (key.Name == "bad") {
			t.Errorf("%s has the problems %v", key, problems)
		}
	}
}
