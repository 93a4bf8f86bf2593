package relay

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// BenchmarkConnection is a connection with one byte there and back. The clients and the endpoint, in Go,
// take most of the time and make all of the garbage.
func BenchmarkConnection(b *testing.B) {
	_, _, addr := relayTo(b, Options{}, &pool{endpoints: []netip.AddrPort{server(b, echo)}})
	b.RunParallel(func(pb *testing.PB) {
		buf := make([]byte, 1)
		for pb.Next() {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = c.Write(buf)
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Error(err)
			}
			c.Close()
		}
	})
}

// BenchmarkMessage is one small message there and back.
func BenchmarkMessage(b *testing.B) {
	_, _, addr := relayTo(b, Options{}, &pool{endpoints: []netip.AddrPort{server(b, echo)}})
	c := dialTCP(b, addr)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, c, "message")
	}
}

// BenchmarkStream is one stream to an endpoint that drops it.
func BenchmarkStream(b *testing.B) {
	_, _, addr := relayTo(b, Options{}, &pool{endpoints: []netip.AddrPort{server(b, func(c *net.TCPConn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				c.Close()
				return
			}
		}
	})}})
	c := dialTCP(b, addr)
	buf := make([]byte, 256<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
