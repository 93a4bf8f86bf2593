package nftables

import (
	"edgeway/proxiers/plan"
	"fmt"
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
func own() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestScale(t *testing.T) {
	for _, n := range []int{100, 1000, 10000, 30000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			newHost(t)
			p, _ := newProxier(t)
			full := newPlan(testNode(), manyServices(n, 5)...)
			m := func(what string, f func()) {
				s, c, o := time.Now(), cpu(), own()
				f()
				t.Logf("%-8s %8.1f ms, nft CPU %8.1f ms, own CPU %8.1f", what, time.Since(s).Seconds()*1000, (cpu()-c).Seconds()*1000, (own()-o).Seconds()*1000)
			}
			m("first", func() { apply(t, p, nil, full) })
			m("again", func() { apply(t, p, nil, full) })
			next := withEndpoints(full, 7, append([]plan.Endpoint{endpoint("10.1.1.1:80")}, full.Services[7].Pools[0][1:]...)...)
			m("warm", func() { apply(t, p, full, next) })
			m("new x20", func() { for range 10 { less := newPlan(full.Node, full.Services[1:]...); less.Node = next.Node; apply(t, p, next, less); apply(t, p, less, next) } })
			m("one x 20", func() {
				for range 10 {
					apply(t, p, next, full)
					apply(t, p, full, next)
				}
			})
			p.applied = nil
			m("restart", func() { apply(t, p, nil, next) })
			if n <= 30000 {
				m("recreate", func() {
					if err := p.recreate(t.Context(), full); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}
