package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/test/nameserver"
)

// startFalseServer listens at the address on the API server's port, and passes each connection to the function treat.
func startFalseServer(t *testing.T, address, apiURL string, treat func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, (&source.APIServer{Name: apiURL}).Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go treat(conn)
		}
	}()
}

// After a false DNS response, the host reconnects within 10 s through an address that it has used before, even after a
// restart. False addresses do not count as addresses of the API server. Once the host name resolves correctly again,
// the host uses the name again.
func TestFalseDNSAnswers(t *testing.T) {
	t.Parallel()
	for what, treat := range map[string]func(net.Conn){
		"refuses":          nil,
		"closes":           func(c net.Conn) { c.Close() },
		"is silent":        func(net.Conn) {},
		"speaks plaintext": func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); c.Close() },
		"has another certificate": func(c net.Conn) {
			config := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}, MinVersion: tls.VersionTLS12}
			_ = tls.Server(c, config).Handshake()
		},
		"does not exist": nil,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			names, resolver := startNameServer(t, "127.0.0.1")
			api, r, url := prepareByName(t, resolver, nil)
			r.run(t)
			r.waitSynced(t, 10*time.Second)
			var lies []netip.Addr
			if what != "does not exist" {
				lies = nameserver.Addrs("127.66.0.1", "127.66.0.2")
			}
			names.Set(apiName, lies...)
			if treat != nil {
				startFalseServer(t, "127.66.0.1", api.URL, treat)
				startFalseServer(t, "127.66.0.2", api.URL, treat)
			}
			r.redial(t, api, 10*time.Second)
			wantAddrs(t, "while the name server lies", r.apiServer(url), "127.0.0.1")
			if r.log.count("using a previous address") == 0 { // an earlier connection attempt succeeded
				r.redial(t, api, 10*time.Second)
			}
			eventually(t, "a line about it", 10*time.Second,
				func() bool { return r.log.count("using a previous address") > 0 })

			known := r.server(url).ProvenAddrs
			again := prepare(t, url, authorityOf(api), func(o *Options) {
				withResolver(resolver)(o)
				o.KnownAddrs = func() []source.ServerAddr { return known }
			})
			again.run(t)
			again.waitSynced(t, 10*time.Second)
			wantAddrs(t, "after a restart", again.apiServer(url), "127.0.0.1")

			names.Set(apiName, nameserver.Addrs("127.0.0.1")...)
			r.redial(t, api, 10*time.Second)
			eventually(t, "the name is followed", 10*time.Second,
				func() bool { return r.log.count("name resolves to the API server again") > 0 })
		})
	}
}

// The source starts while the last-known state is loading. Loading may take longer than the first connection attempts.
// The host still connects to the API server within 10 s.
func TestFalseDNSAnswersBeforeLastKnownState(t *testing.T) {
	t.Parallel()
	_, resolver := startNameServer(t, "127.66.0.3")
	for _, load := range []time.Duration{time.Second, 4 * time.Second} {
		loaded := time.Now().Add(load)
		api, r, _ := prepareByName(t, resolver, func(o *Options) {
			o.KnownAddrs = func() []source.ServerAddr {
				if time.Now().Before(loaded) {
					return nil
				}
				return []source.ServerAddr{{Addr: netip.MustParseAddr("127.0.0.1")}}
			}
		})
		startFalseServer(t, "127.66.0.3", api.URL, func(net.Conn) {})
		r.run(t)
		r.waitSynced(t, 10*time.Second)
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Error(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{apiName},
		NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Error(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func TestSilentNameServer(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, r, _ := prepareByName(t, &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("udp", silent.LocalAddr().String())
		},
	}, func(o *Options) {
		o.KnownAddrs = func() []source.ServerAddr {
			return []source.ServerAddr{{Addr: netip.MustParseAddr("127.0.0.1")}}
		}
	})
	r.run(t)
	r.waitSynced(t, 10*time.Second)
}
