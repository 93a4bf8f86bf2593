package xtables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

func TestRestoreWritesTables(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			in := NewInput()
			in.Write(Chain{ChainID{NAT, "KUBE-SVC-A"}, []string{"-j MASQUERADE --random-fully"}})
			in.Write(Chain{ChainID{Filter, "KUBE-FORWARD"}, []string{"-j ACCEPT"}})
			if err := testTools(t, v, f).Restore(t.Context(), in.Bytes()); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"-A KUBE-SVC-A -j MASQUERADE --random-fully", "-A KUBE-FORWARD -j ACCEPT"} {
				if got := iptablestest.Ruleset(t, v, f); !strings.Contains(got, want) {
					t.Errorf("%s lacks %q:\n%s", f, want, got)
				}
			}
		}
	})
}

func TestRefusedContent(t *testing.T) {
	cases := []struct{ name, lines string }{
		{"bad number", ":KUBE-X - [0:0]\n-A KUBE-X -p tcp -m tcp --dport 99999 -j ACCEPT"},
		{"no such chain", "-A KUBE-NONE -j ACCEPT"},
		{"no such match", ":KUBE-X - [0:0]\n-A KUBE-X -m nosuch -j ACCEPT"},
		{"no such rule", "-D OUTPUT -j ACCEPT"},
		{"kernel refuses", ":KUBE-X - [0:0]\n-A KUBE-X -j REJECT"},
		{"nonsense", "nonsense"},
	}
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		tools := testTools(t, v, plan.IPv4)
		for _, c := range cases {
			err := tools.Restore(t.Context(), []byte("*nat\n:KUBE-KEPT - [0:0]\n"+c.lines+"\nCOMMIT\n"))
			if !errors.Is(err, proxiers.ErrRefused) {
				t.Errorf("%s: %v is no refusal", c.name, err)
				continue
			}
			if text := err.Error(); strings.Contains(text, "\n") || len(text) > 400 {
				t.Errorf("%s: want one line, got %q", c.name, text)
			}
			t.Logf("%s: %v", c.name, err)
		}
		if got := iptablestest.Ruleset(t, v, plan.IPv4); strings.Contains(got, "KUBE-") {
			t.Errorf("a refused input left something behind:\n%s", got)
		}
	})
}

func TestMissingPrivilegeIsNoRefusal(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		tools := testTools(t, v, plan.IPv4)
		iptablestest.RestrictPrograms(t, map[string]string{"setpriv": "", "sh": ""})
		tools.programs.restore = script(t, "exec /usr/bin/setpriv --bounding-set=-net_admin "+tools.programs.restore+
			` "$@"`)
		err := tools.Restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n"))
		if err == nil || errors.Is(err, proxiers.ErrRefused) {
			t.Errorf("want an error that is no refusal, got %v", err)
		}
	})
}

func TestRestoreEndsWithContext(t *testing.T) {
	iptablestest.NewHost(t)
	tools := testTools(t, NFT, plan.IPv4)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tools.programs.restore = script(t, "exec sleep 60")
	start := time.Now()
	err := tools.Restore(ctx, []byte("*nat\nCOMMIT\n"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, proxiers.ErrRefused) {
		t.Errorf("want the end of the context, got %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Edgeway kills a program that hangs or whose child hangs, even if the caller's context has no deadline.
func TestHungProgramsAreKilled(t *testing.T) {
	path := script(t, "exec /bin/sleep 60")
	withChild := script(t, "/bin/sleep 60 & echo; exec /bin/sleep 60")
	iptablestest.RestrictPrograms(t, map[string]string{
		"iptables-nft": "#!/bin/sh\nexec /bin/sleep 60\n", "iptables-nft-restore": path, "iptables-nft-save": path,
	})
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var wait sync.WaitGroup
	for name, run := range map[string]func() error{
		"version": func() error {
			_, err := Open(t.Context(), NFT, plan.IPv4)
			return err
		},
		"restore with a child": func() error {
			tools := &Tools{Variant: NFT, Family: plan.IPv4, programs: programs{restore: withChild}}
			return tools.Restore(short, write(NAT, "KUBE-X"))
		},
		"save with a child": func() error {
			return call{Path: withChild, Stdout: &saveReader{visit: func(Line) {}}, Timeout: queryBound}.run(short)
		},
	} {
		wait.Go(func() {
			start := time.Now()
			err := run()
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 2*queryBound {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
	wait.Wait()
}

// holdLock acquires the iptables-legacy lock, as another process would.
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

func TestLockWaitIsMeasured(t *testing.T) {
	iptablestest.NewHost(t)
	tools := testTools(t, Legacy, plan.IPv4)
	const held = time.Second
	release := holdLock(t)
	start := time.Now()
	time.AfterFunc(held, release)
	for range 2 {
		if err := tools.Restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
	}
	// On a busy machine, Restore may start a while after the timer.
	if locks, waited := tools.LockWait(); locks != 2 || waited < held/2 || waited > time.Since(start) {
		t.Errorf("%d locks in %v, want 2 in at least %v, and no more than both took", locks, waited, held/2)
	}
}

func TestLockTimeout(t *testing.T) {
	iptablestest.NewHost(t)
	tools := testTools(t, Legacy, plan.IPv4)
	defer holdLock(t)()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := tools.Restore(ctx, []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, proxiers.ErrRefused) ||
		!strings.Contains(err.Error(), os.Getenv("XTABLES_LOCKFILE")) {
		t.Errorf("want an error that names the lock, got %v", err)
	}
	if locks, waited := tools.LockWait(); locks != 0 || waited < 500*time.Millisecond {
		t.Errorf("%d locks in %v, want none in most of 1 s", locks, waited)
	}
}

func TestWaitOptionEndsBeforeDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if got := waitOption(ctx); got != "--wait=2" && got != "--wait=1" {
		t.Errorf("%s, want less than the 3 s until the deadline", got)
	}
}

// Another process acquires the lock after Edgeway has tested it and before the iptables program starts.
func TestProgramLosesLockRace(t *testing.T) {
	iptablestest.NewHost(t)
	tools := testTools(t, Legacy, plan.IPv4)
	release := holdLock(t)
	defer release()
	tools.lock.path += "-free"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := tools.Restore(ctx, []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n"))
	if err == nil || errors.Is(err, proxiers.ErrRefused) || !strings.Contains(err.Error(), "holding the xtables lock") {
		t.Errorf("want an error about the lock that is no refusal, got %v", err)
	}
}

func TestOnlyLegacyUsesLock(t *testing.T) {
	iptablestest.NewHost(t)
	tools := testTools(t, NFT, plan.IPv4)
	defer holdLock(t)()
	if err := tools.Restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n")); err != nil {
		t.Error(err)
	}
	if locks, waited := tools.LockWait(); locks != 0 || waited != 0 {
		t.Errorf("%d locks in %v, want none", locks, waited)
	}
}

// If other programs change the same tables at the same time as Edgeway, no change is lost.
func TestConcurrentChanges(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		tools := testTools(t, v, plan.IPv4)
		const rounds = 40
		iptablestest.Restore(t, v, plan.IPv4, NAT, ":OTHER-0 - [0:0]", ":OTHER-1 - [0:0]")
		var wait [2]func()
		for i := range wait {
			wait[i] = iptablestest.StartScript(t,
				fmt.Sprintf("for i in $(seq %d); do iptables-%s --wait -t nat -A OTHER-%d -j ACCEPT || exit 1; done",
					rounds, v, i))
		}
		for i := range rounds {
			if err := tools.Restore(t.Context(), write(NAT, fmt.Sprintf("KUBE-SVC-%d", i), "-j ACCEPT")); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		}
		for _, w := range wait {
			w()
		}
		count := map[string]int{}
		err := tools.Save(t.Context(), NAT, func(l Line) {
			if l.IsRule {
				count[l.Chain]++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(count) != rounds+2 || count["OTHER-0"] != rounds || count["OTHER-1"] != rounds {
			t.Errorf("want %d chains of ours and %d rules of each other program, got %v", rounds, rounds, count)
		}
	})
}
