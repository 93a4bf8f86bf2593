package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/pipeline"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// fakeShortcutter is a backend with a shortcut that tells what a test wants.
type fakeShortcutter struct{ told proxiers.Shortcut }

func (s fakeShortcutter) Apply(context.Context, proxiers.Change) error { return nil }
func (s fakeShortcutter) Shortcut() proxiers.Shortcut                  { return s.told }

func (s fakeShortcutter) Explain(plan.Decision, bool) (proxiers.Path, error) {
	return proxiers.Path{Shortcut: "by socket"}, nil
}

func TestShortcutIsTold(t *testing.T) {
	with := func(s proxiers.Shortcut) *instance {
		return &instance{stages: []pipeline.Stage{{Name: "fake", Applier: fakeShortcutter{s}}}}
	}
	up := with(proxiers.Shortcut{Taken: 97, Left: map[string]uint64{"source ranges": 2, "session affinity": 1}, NoRoom: 4})
	want := []string{"taken by 97 % (97) of the connections to Services", "1 left to the rules: session affinity", "2 left to the rules: source ranges", "4 ServicePorts do not fit"}
	if got := up.shortcutStatus(); !slices.Equal(got, want) || up.shortcutCondition() != nil {
		t.Errorf("%q, %v", got, up.shortcutCondition())
	}
	down := with(proxiers.Shortcut{Down: errors.New("detached")})
	if c := down.shortcutCondition(); len(c) != 1 || !strings.Contains(c[0].Message, "detached") || !slices.Equal(down.shortcutStatus(), []string{"not at work: detached"}) {
		t.Errorf("%v, %q", c, down.shortcutStatus())
	}
	if path, err := up.path(plan.Decision{}, false); err != nil || path.Shortcut != "by socket" {
		t.Errorf("path %+v, error %v", path, err)
	}
	none := &instance{}
	if path, err := none.path(plan.Decision{}, false); err != nil || path.Shortcut != "" || none.shortcutStatus() != nil || none.shortcutCondition() != nil {
		t.Error("a backend without a shortcut reports one")
	}
}
