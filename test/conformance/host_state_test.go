package conformance

import (
	"context"
	"errors"
	"slices"
	"testing"

	"edgeway/proxiers"
)

func component(name string, done *[]string, fails error) proxiers.Component {
	note := func(what string) { *done = append(*done, name+" "+what) }
	return proxiers.Component{
		Name:  name,
		Probe: func(context.Context) error { note("probe"); return nil },
		New: func(context.Context, proxiers.Env) (proxiers.Proxier, error) {
			note("new")
			return noted{note}, fails
		},
		Cleanup: func(context.Context, proxiers.Env) error { note("cleanup"); return nil },
	}
}

type noted struct{ note func(string) }

func (n noted) Apply(context.Context, proxiers.Change) error { n.note("apply"); return nil }
func (n noted) Close() error                                 { n.note("close"); return nil }

// TestFollowersRunAfterBackend verifies that followers run after their backend, and that cleanUp cleans up the
// followers before the backend.
func TestFollowersRunAfterBackend(t *testing.T) {
	var done []string
	b := Backend{
		Component: component("backend", &done, nil),
		Followers: []proxiers.Component{component("follower", &done, nil)},
	}
	s, err := b.start(t.Context(), silentEnv())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		s.Apply(t.Context(), proxiers.Change{}), s.Close(),
		b.cleanUp(t.Context(), silentEnv()),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"backend new", "follower new", "backend apply", "follower apply", "backend close", "follower close",
		"follower cleanup", "backend cleanup",
	}
	if !slices.Equal(done, want) {
		t.Errorf("done was %q, want %q", done, want)
	}
	// If a follower fails to start, Backend.start must close the backend.
	done = nil
	b.Followers[0] = component("follower", &done, errors.New("no"))
	b.Component = component("backend", &done, nil)
	if _, err := b.start(t.Context(), silentEnv()); err == nil || !slices.Contains(done, "backend close") {
		t.Errorf("a follower that cannot start: error %v, done was %q", err, done)
	}
}
