package iptables

import (
	"context"
	"net"
	"testing"
	"time"

	"edgeway/proxiers/plan"
)

func TestChainPackets(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		run(t, "", "ip", "link", "set", "lo", "up")
		tools := testTools(t, v, plan.IPv4)
		restore(t, v, plan.IPv4, tableFilter, ":KUBE-LOOPBACK-UDP - [0:0]", "-A INPUT -p udp -m udp --dport 30000 -j KUBE-LOOPBACK-UDP",
			"-A KUBE-LOOPBACK-UDP -m comment --comment \"not -c 5 5\" -j REJECT")
		const sent = 3
		for range sent {
			// A socket each: a refused one reports the refusal instead of sending again.
			send(t, "127.0.0.1:30000")
		}
		if n, err := tools.chainPackets(t.Context(), tableFilter, chainLoopbackUDP); n != sent || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
		restore(t, v, plan.IPv4, tableNAT, ":KUBE-SERVICES - [0:0]", "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES", "-A KUBE-SERVICES -p tcp -j RETURN", "-A KUBE-SERVICES -p udp")
		send(t, "127.0.0.1:30001")
		if n, err := tools.chainPackets(t.Context(), tableNAT, chainServices); n != 1 || err != nil {
			t.Errorf("rule without target: got %d, %v", n, err)
		}
		if n, err := tools.chainPackets(t.Context(), tableFilter, chainLoopbackSCTP); n != 0 || err != nil {
			t.Errorf("chain that is missing: got %d, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tools.chainPackets(ctx, tableFilter, chainLoopbackUDP); err == nil {
			t.Error("no error although the context ended")
		}
	})
}

func send(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("udp", addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}
