package daemon

import (
	"fmt"
	"maps"
	"slices"

	"edgeway/daemon/health"
	"edgeway/proxiers"
)

// shortcutter is the backend, if it has a way past its rules.
func (i *instance) shortcutter() (proxiers.Shortcutter, bool) {
	if len(i.stages) == 0 {
		return nil, false
	}
	s, ok := i.stages[0].Applier.(proxiers.Shortcutter)
	return s, ok
}

// shortcutCondition says that connections are slower than they could be.
func (i *instance) shortcutCondition() []health.Condition {
	s, ok := i.shortcutter()
	if !ok {
		return nil
	}
	if down := s.Shortcut().Down; down != nil {
		return []health.Condition{{
			Name: "shortcut", Level: health.Warning,
			Message: "Connections take the rules, without the backend's shortcut: " + down.Error(),
		}}
	}
	return nil
}

// shortcutStatus is for edgeway status; empty: there is none.
func (i *instance) shortcutStatus() (lines []string) {
	s, ok := i.shortcutter()
	if !ok {
		return nil
	}
	c := s.Shortcut()
	left := uint64(0)
	for _, n := range c.Left {
		left += n
	}
	if c.Down == nil || c.Taken > 0 {
		lines = append(lines, fmt.Sprintf("taken by %s of the connections to Services", share(c.Taken, left)))
	}
	if c.Down != nil {
		lines = append(lines, "not at work: "+c.Down.Error())
	}
	for _, why := range slices.Sorted(maps.Keys(c.Left)) {
		lines = append(lines, fmt.Sprintf("%d left to the rules: %s", c.Left[why], why))
	}
	if c.NoRoom > 0 {
		lines = append(lines, fmt.Sprintf("%d ServicePorts do not fit", c.NoRoom))
	}
	return lines
}

func share(taken, left uint64) string {
	if taken+left == 0 {
		return "none"
	}
	return fmt.Sprintf("%d %% (%d)", taken*100/(taken+left), taken)
}
