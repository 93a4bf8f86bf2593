package health

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/journal"
	"edgeway/proxiers/fault"
)

// withFaultLog runs a FaultLog in a synctest bubble. lines returns the lines that the FaultLog has logged since the
// last call.
func withFaultLog(t *testing.T, do func(set func(...fault.Fault), lines func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var faults []fault.Fault
		var out bytes.Buffer
		c := New(fixedState{synced()})
		c.Include(func() []fault.Fault {
			mu.Lock()
			defer mu.Unlock()
			return faults
		})
		ctx, stop := context.WithCancel(t.Context())
		log := NewFaultLog(journal.NewDamper(slog.New(slog.NewTextHandler(&out, nil))), "other")
		go log.Run(ctx, c.Faults)
		do(func(f ...fault.Fault) {
			mu.Lock()
			faults = f
			mu.Unlock()
		}, func() []string {
			synctest.Wait()
			defer out.Reset()
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		})
		stop()
		synctest.Wait()
	})
}

func TestFaultBeginAndEndAreLogged(t *testing.T) {
	web := fault.New("services-dead", fault.Problem, "start it", "no answer")
	for name, c := range map[string]struct {
		before, after []fault.Fault
		want          string // the only logged line must contain want
	}{
		"begins":            {nil, []fault.Fault{web}, `level=ERROR msg="fault began" message_id=`},
		"has its fix":       {nil, []fault.Fault{web}, `fault=services-dead message="no answer" fix="start it"`},
		"lasts":             {[]fault.Fault{web}, []fault.Fault{web}, ""},
		"has other figures": {[]fault.Fault{web}, []fault.Fault{fault.New(web.ID, web.Severity, web.Fix, "no answer for 1 s")}, ""},
		"ends":              {[]fault.Fault{web}, nil, `level=INFO msg="fault ended" message_id=`},
		"another object":    {[]fault.Fault{web}, []fault.Fault{web, web.WithName("b")}, `message="b: no answer"`},
		"a Notice":          {nil, []fault.Fault{{ID: "x", Severity: fault.Notice}}, "level=INFO"},
		"a Warning":         {nil, []fault.Fault{{ID: "x", Severity: fault.Warning}}, "level=WARN"},
		"with own lines":    {nil, []fault.Fault{{ID: "other"}, {ID: "follower-conntrack"}}, ""},
		"a source lists":    {nil, []fault.Fault{{ID: "source-kube"}}, ""},
		"a source fails":    {[]fault.Fault{{ID: "source-kube"}}, []fault.Fault{{ID: "source-kube", Fix: "a"}}, "fault began"},
		"another cause":     {[]fault.Fault{{ID: "source-kube", Fix: "a"}}, []fault.Fault{{ID: "source-kube", Fix: "b"}}, "fault began"},
		"lists again":       {[]fault.Fault{{ID: "source-kube", Fix: "a"}}, []fault.Fault{{ID: "source-kube"}}, ""},
		"a source recovers": {[]fault.Fault{{ID: "source-kube", Fix: "a"}}, nil, "fault ended"},
		"twice in the list": {nil, []fault.Fault{web, web}, "fault began"},
	} {
		withFaultLog(t, func(set func(...fault.Fault), lines func() []string) {
			set(c.before...)
			time.Sleep(3 * logInterval)
			lines()
			set(c.after...)
			time.Sleep(3 * logInterval)
			if got := lines(); len(got) != 1 || !strings.Contains(got[0], c.want) || (c.want == "") != (got[0] == "") {
				t.Errorf("%s: %q", name, got)
			}
		})
	}
}

func TestShortFaultIsNotLogged(t *testing.T) {
	withFaultLog(t, func(set func(...fault.Fault), lines func() []string) {
		time.Sleep(startupTime + logInterval/2)
		set(fault.Fault{ID: "x"})
		time.Sleep(logInterval - time.Second)
		set()
		time.Sleep(3 * logInterval)
		if got := lines(); got[0] != "" {
			t.Errorf("%q", got)
		}
	})
}

func TestFlappingFaultIsLoggedHourly(t *testing.T) {
	withFaultLog(t, func(set func(...fault.Fault), lines func() []string) {
		for range 24 * 60 {
			set(fault.Fault{ID: "x"})
			time.Sleep(30 * time.Second)
			set()
			time.Sleep(30 * time.Second)
		}
		if got := lines(); len(got) > 7+24 || !strings.Contains(got[6], "too often") {
			t.Errorf("%d lines in a day: %q", len(got), got)
		}
	})
}
