package conntrack

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func BenchmarkEndpointLostAmong50000Flows(b *testing.B) {
	benchmarkApply(b, proxiers.Change{Prev: planOf(service(udp4, "dns", []string{vip}, first)), Next: planOf(service(udp4, "dns", []string{vip}))})
}

func BenchmarkFullSyncAmong50000Flows(b *testing.B) {
	var many []*plan.ServicePort
	for i := range 2 * fewDestinations {
		many = append(many, service(udp4, fmt.Sprintf("s%02d", i), []string{fmt.Sprintf("10.96.1.%d:53", i)}))
	}
	benchmarkApply(b, proxiers.Change{Next: planOf(many...)})
}

func benchmarkApply(b *testing.B, c proxiers.Change) {
	enterNamespace(b)
	translate(b)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	for i := range 50000 {
		to := &syscall.SockaddrInet4{Port: 53, Addr: [4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)}}
		if err := syscall.Sendto(fd, []byte("?"), 0, to); err != nil {
			b.Fatal(err)
		}
	}
	f := New(Options{Logger: slog.New(slog.DiscardHandler), Cleaned: func(plan.Family, int, time.Duration) {}})
	for b.Loop() {
		if err := f.Apply(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
