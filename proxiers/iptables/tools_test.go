package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestRestoreWritesTables(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			in := newInput()
			in.write(chain{tableNAT, "KUBE-SVC-A", []string{"-j MASQUERADE --random-fully"}})
			in.write(chain{tableFilter, "KUBE-FORWARD", []string{"-j ACCEPT"}})
			if err := testTools(t, v, f).restore(t.Context(), in.bytes()); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"-A KUBE-SVC-A -j MASQUERADE --random-fully", "-A KUBE-FORWARD -j ACCEPT"} {
				if got := ruleset(t, v, f); !strings.Contains(got, want) {
					t.Errorf("%s lacks %q:\n%s", f, want, got)
				}
			}
		}
	})
}

func TestRefusedContentIsQuoted(t *testing.T) {
	cases := []struct {
		name, lines string
		// quote is what the error must say of the input; legacy if it differs there.
		quote, legacyQuote string
	}{
		{name: "bad number", lines: ":KUBE-X - [0:0]\n-A KUBE-X -p tcp -m tcp --dport 99999 -j ACCEPT", quote: "--dport 99999"},
		{name: "no such chain", lines: "-A KUBE-NONE -j ACCEPT", quote: "-A KUBE-NONE"},
		{name: "no such match", lines: ":KUBE-X - [0:0]\n-A KUBE-X -m nosuch -j ACCEPT", quote: "-m nosuch"},
		{name: "no such rule", lines: "-D OUTPUT -j ACCEPT", quote: "-D OUTPUT"},
		{name: "kernel refuses", lines: ":KUBE-X - [0:0]\n-A KUBE-X -j REJECT", quote: "-A KUBE-X -j REJECT", legacyQuote: "*nat"},
		{name: "nonsense", lines: "nonsense", quote: "nonsense"},
	}
	eachVariant(t, func(t *testing.T, v variant) {
		tools := testTools(t, v, plan.IPv4)
		for _, c := range cases {
			err := tools.restore(t.Context(), []byte("*nat\n:KUBE-KEPT - [0:0]\n"+c.lines+"\nCOMMIT\n"))
			if !errors.Is(err, proxiers.ErrRefused) {
				t.Errorf("%s: %v is no refusal", c.name, err)
				continue
			}
			quote := c.quote
			if v == legacy && c.legacyQuote != "" {
				quote = c.legacyQuote
			}
			if text := err.Error(); !strings.Contains(text, fmt.Sprintf("%q", quote)[1:len(quote)+1]) || strings.Contains(text, "\n") || len(text) > 400 {
				t.Errorf("%s: want one line that quotes %q, got %q", c.name, quote, text)
			}
			t.Logf("%s: %v", c.name, err)
		}
		if got := ruleset(t, v, plan.IPv4); strings.Contains(got, "KUBE-") {
			t.Errorf("a refused input left something behind:\n%s", got)
		}
	})
}

func TestNoPrivilegeIsNoRefusal(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		tools := testTools(t, v, plan.IPv4)
		onlyPrograms(t, map[string]string{"setpriv": "", "sh": ""})
		script := fmt.Sprintf("#!/bin/sh\nexec /usr/bin/setpriv --bounding-set=-net_admin %s \"$@\"\n", tools.programs.restore)
		path := t.TempDir() + "/weak"
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		tools.programs.restore = path
		err := tools.restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n"))
		if err == nil || errors.Is(err, proxiers.ErrRefused) {
			t.Errorf("want an error that is no refusal, got %v", err)
		}
	})
}

func TestRestoreEndsWithItsContext(t *testing.T) {
	newHost(t)
	tools := testTools(t, nft, plan.IPv4)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tools.programs.restore = sleeper(t)
	start := time.Now()
	err := tools.restore(ctx, []byte("*nat\nCOMMIT\n"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, proxiers.ErrRefused) {
		t.Errorf("want the end of the context, got %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// sleeper is a program that hangs.
func sleeper(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/sleeper"
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// holdLock takes the lock of iptables-legacy as another process does, and gives how to release it.
func holdLock(t *testing.T) (release func()) {
	t.Helper()
	file, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { file.Close() }
}

func TestLockIsWaitedForAndMeasured(t *testing.T) {
	newHost(t)
	tools := testTools(t, legacy, plan.IPv4)
	const held = 200 * time.Millisecond
	time.AfterFunc(held, holdLock(t))
	for range 2 {
		if err := tools.restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
	}
	if locks, waited := tools.lockWait(); locks != 2 || waited < held || waited > held+time.Second {
		t.Errorf("%d locks in %v, want 2 in a little more than %v", locks, waited, held)
	}
}

func TestLockThatIsNeverFree(t *testing.T) {
	newHost(t)
	tools := testTools(t, legacy, plan.IPv4)
	defer holdLock(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := tools.restore(ctx, []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, proxiers.ErrRefused) || !strings.Contains(err.Error(), os.Getenv("XTABLES_LOCKFILE")) {
		t.Errorf("want an error that names the lock, got %v", err)
	}
	if locks, waited := tools.lockWait(); locks != 0 || waited < 100*time.Millisecond {
		t.Errorf("%d locks in %v, want none in 100 ms or more", locks, waited)
	}
}

// The lock is taken by another program between our look and the program's own.
func TestProgramThatDoesNotGetTheLock(t *testing.T) {
	newHost(t)
	tools := testTools(t, legacy, plan.IPv4)
	release := holdLock(t)
	defer release()
	tools.lock.path += "-free"
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	err := tools.restore(ctx, []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n"))
	if err == nil || errors.Is(err, proxiers.ErrRefused) || !strings.Contains(err.Error(), "holding the xtables lock") {
		t.Errorf("want an error about the lock that is no refusal, got %v", err)
	}
}

func TestLockIsOnlyLegacys(t *testing.T) {
	newHost(t)
	tools := testTools(t, nft, plan.IPv4)
	defer holdLock(t)()
	if err := tools.restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n")); err != nil {
		t.Error(err)
	}
	if locks, waited := tools.lockWait(); locks != 0 || waited != 0 {
		t.Errorf("%d locks in %v, want none", locks, waited)
	}
}

// Other programs change the same tables all the while; neither loses anything.
func TestConcurrentChanges(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		tools := testTools(t, v, plan.IPv4)
		const rounds = 40
		restore(t, v, plan.IPv4, tableNAT, ":OTHER-0 - [0:0]", ":OTHER-1 - [0:0]")
		var wait [2]func()
		for i := range wait {
			wait[i] = startOther(t, fmt.Sprintf("for i in $(seq %d); do iptables-%s --wait -t nat -A OTHER-%d -j ACCEPT || exit 1; done", rounds, v, i))
		}
		for i := range rounds {
			in := newInput()
			in.write(chain{tableNAT, fmt.Sprintf("KUBE-SVC-%d", i), []string{"-j ACCEPT"}})
			if err := tools.restore(t.Context(), in.bytes()); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		}
		for _, w := range wait {
			w()
		}
		s, err := tools.save(t.Context(), tableNAT)
		if err != nil {
			t.Fatal(err)
		}
		if s.rules != rounds || s.foreign["OTHER-0"] != rounds || s.foreign["OTHER-1"] != rounds {
			t.Errorf("want %d rules of ours and of each other, got %d and %v", rounds, s.rules, s.foreign)
		}
	})
}
