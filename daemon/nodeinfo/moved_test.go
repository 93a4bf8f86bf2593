package nodeinfo

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A change to routes, routing rules or kernel settings that are not part of Host triggers NetworkChanged, but not
// Changed.
func TestMovedReportsRoutesAndSettings(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0")...)
	for what, move := range map[string]func(){
		"route":  func() { l.ip("route add 198.51.100.0/24 via 192.0.2.254") },
		"rule":   func() { l.ip("rule add from 192.0.2.99 lookup main") },
		"sysctl": func() { l.flip("net/ipv4/ip_forward") },
		"ipv6":   func() { l.flip("net/ipv6/conf/all/forwarding") },
	} {
		l.wantNoChange()
		for len(l.NetworkChanged()) > 0 {
			<-l.NetworkChanged()
		}
		move()
		select {
		case <-l.NetworkChanged():
		case <-time.After(30 * time.Second):
			t.Errorf("%s: nothing was told", what)
		}
		l.wantNoChange()
	}
}

const ignoredTable = 99

func TestIgnoredTablesDoNotTriggerMoved(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0")...)
	l.awaitQuiet()
	for _, c := range []struct {
		table string
		told  int
	}{{"99", 0}, {"98", 1}, {"main", 1}} {
		for _, what := range []string{"add", "del"} {
			l.wantNoChange()
			for len(l.NetworkChanged()) > 0 {
				<-l.NetworkChanged()
			}
			l.ip("route " + what + " local 198.51.100.7/32 dev lo table " + c.table)
			for until := time.Now().Add(30 * time.Second); len(l.NetworkChanged()) < c.told &&
				time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			l.wantNoChange()
			if got := len(l.NetworkChanged()); got != c.told {
				t.Errorf("%s in table %s: told %d times, want %d", what, c.table, got, c.told)
			}
		}
	}
}

// awaitQuiet waits until the watcher has announced nothing for 2 s. The kernel may report the new state of a veth link
// a second after the command that changes it.
func (l *lab) awaitQuiet() {
	for {
		select {
		case <-l.Changed():
		case <-l.NetworkChanged():
		case <-time.After(2 * time.Second):
			return
		}
	}
}

// flip toggles a setting whose value is 0 or 1. The settings under /proc/sys/net belong to this thread's network
// namespace.
func (l *lab) flip(name string) {
	l.Helper()
	value := "1"
	if before, err := os.ReadFile("/proc/sys/" + name); err != nil {
		l.Fatal(err)
	} else if strings.TrimSpace(string(before)) == "1" {
		value = "0"
	}
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
		l.Fatal(err)
	}
}
