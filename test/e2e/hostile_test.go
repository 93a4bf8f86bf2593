package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"edgeway/test/netlab"
)

// memory returns the daemon's memory in MiB: the peak value if high is true, and the current value otherwise.
func (d *daemon) memory(high bool) int {
	d.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	d.must(err)
	field := "VmRSS:"
	if high {
		field = "VmHWM:"
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			d.must(err)
			return kib >> 10
		}
	}
	d.t.Fatalf("no %s in\n%s", field, raw)
	return 0
}

func (d *daemon) sockets(port uint16) int {
	d.t.Helper()
	return strings.Count(d.onNode("ss", "-Htn", "state", "established", "sport", "=", fmt.Sprintf(":%d", port)), "\n")
}

func (d *daemon) openToAll(listener string) {
	d.t.Helper()
	config, err := os.ReadFile(d.config)
	d.must(err)
	_, port, _ := strings.Cut(listener, ":")
	d.must(os.WriteFile(d.config, []byte(strings.Replace(string(config), listener, ":"+port, 1)), 0o600))
}

// openConnections opens n connections from a host and sends the same incomplete request over each connection. The
// connections stay open.
func (l *lab) openConnections(from *netlab.Host, to, request string, n int) (conns []net.Conn) {
	l.t.Helper()
	l.must(from.Do(func() error {
		for range n {
			conn, err := net.DialTimeout("tcp", to, longTimeout)
			if err != nil {
				return err
			}
			conns = append(conns, conn)
			if _, err := io.WriteString(conn, request); err != nil && !errors.Is(err, syscall.EPIPE) &&
				!errors.Is(err, syscall.ECONNRESET) {
				return err
			}
		}
		return nil
	}))
	return conns
}

// A client that can reach the health port must neither exhaust the daemon's memory nor prevent responses to other
// clients.
func TestHealthPortUnderAttack(t *testing.T) {
	t.Parallel()
	newLab(t).attack(healthAddr, "/healthz")
}

// A client that can reach the metrics port must neither exhaust the daemon's memory nor prevent responses to other
// clients.
func TestMetricsPortUnderAttack(t *testing.T) {
	t.Parallel()
	newLab(t).attack(metricsAddr, "/metrics")
}

// attack opens one of the daemon's listeners to all hosts, and sends this listener requests for the given path. The
// test fails unless the daemon survives.
func (l *lab) attack(listener, path string) {
	l.t.Helper()
	d := l.newDaemon()
	d.openToAll(listener)
	d.startReady()
	port := netip.MustParseAddrPort(listener).Port()
	idle := d.memory(false)
	post := "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n"
	large := post + "X-Large: " + strings.Repeat("x", 60<<10)
	for name, request := range map[string]string{
		"a body that never comes": post + "\r\nx",
		"large headers":           large + "\r\n\r\nx",
		"headers without an end":  large,
		"idle":                    "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"nothing":                 "",
	} {
		conns := l.openConnections(l.client, at(nodeAddr, int(port)), request, 3000)
		for start := time.Now(); ; time.Sleep(50 * time.Millisecond) { // /metrics serves only a few requests at a time
			code, body, err := d.get(listener, path)
			took, failed := time.Since(start), code != http.StatusOK || err != nil
			late := took > l.extendLimit(time.Second)
			if failed && !late && listener == metricsAddr {
				continue
			}
			if failed || late {
				l.t.Errorf("%s: a probe of this host gets %d %.200s %v after %s", name, code, body, err, took)
			}
			break
		}
		if n := d.sockets(port); n > 300 {
			l.t.Errorf("%s: %d connections are open", name, n)
		}
		l.waitFor(2*time.Minute, func() error { // the daemon's longest timeout is a minute
			if n := d.sockets(port); n > 0 {
				return fmt.Errorf("%s: %d connections are still open", name, n)
			}
			return nil
		})
		for _, c := range conns {
			c.Close()
		}
	}
	most := d.memory(true)
	if most > idle+64 {
		l.t.Errorf("the attacks took %d MiB, want at most 64", most-idle)
	}
	l.t.Logf("memory: %d MiB before, at most %d MiB in the attacks", idle, most)
	l.must(d.healthy())
}

// The daemon must send other hosts only the IDs of faults, not the faults' messages.
func TestOtherHostsGetNoFaultMessages(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.openToAll(healthAddr)
	d.startReady()
	d.link.cut()
	l.waitFor(longTimeout, d.statusPrints("source-kube"))
	client := http.Client{Timeout: longTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = l.client.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz?verbose"} {
		resp, err := client.Get("http://" + at(nodeAddr, 10256) + path)
		l.must(err)
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		l.must(err)
		if !strings.Contains(string(raw), `{"id":"source-kube","severity":"warning"}`) ||
			strings.Contains(string(raw), "message") || strings.Contains(string(raw), "http") {
			t.Errorf("%s tells a stranger %s", path, raw)
		}
		if _, body, err := d.get(healthAddr, path); err != nil || !strings.Contains(body, `"message":"Source kube`) {
			t.Errorf("%s tells this host %s %v", path, body, err)
		}
	}
}

// Control characters in an impostor's certificate must not reach an operator's terminal.
func TestCertificateTextIsEscaped(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	l.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"\x1b]0;owned\a\x1b[2J.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	l.must(err)
	var listener net.Listener
	l.must(l.node.Do(func() (err error) {
		listener, err = tls.Listen("tcp", "127.0.0.1:6443",
			&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
		return err
	}))
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	l.must(os.WriteFile(filepath.Join(d.dir, "kubeconfig"), []byte(`{apiVersion: v1, kind: Config, current-context: x,
contexts: [{name: x, context: {cluster: x}}],
clusters: [{name: x, cluster: {server: "https://localhost:6443"}}]}`), 0o600))
	d.start()
	l.waitFor(longTimeout, d.logged("fault began", "fault=source-kube", "owned"))
	out, errs, _ := d.edgeway("status")
	dry, dryErrs, _ := d.edgeway("status", "--json")
	_, body, err := d.get(healthAddr, "/healthz")
	l.must(err)
	log, err := os.ReadFile(d.logFile())
	l.must(err)
	for name, text := range map[string]string{
		"status": out + errs, "status --json": dry + dryErrs, "/healthz": body,
		"log": string(log),
	} {
		if !strings.Contains(text, "owned") ||
			strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// Edgeway must process hostile manifests quickly and with little memory, and must serve the Services in other
// manifests.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	dir := filepath.Join(d.dir, "manifests")
	write := func(name, text string) { l.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	l.must(os.Mkdir(dir, 0o700))
	write("1-bomb.yaml", "a: &a "+strings.Repeat("x", 1<<20)+"\nb: ["+strings.Repeat("*a,", 3000)+"]\n")
	write("2-sparse.json", "")
	l.must(os.Truncate(filepath.Join(dir, "2-sparse.json"), 3<<30))
	l.must(syscall.Mkfifo(filepath.Join(dir, "3-pipe.yaml"), 0o600))
	l.must(os.Symlink("/proc/kmsg", filepath.Join(dir, "4-kmsg.yaml")))
	write("5-faults.yaml", strings.Repeat("a: [\n---\n", 20_000))
	write("7-good.yaml", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: good}
spec: {type: NodePort, clusterIP: 10.97.0.10, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: good-1, labels: {kubernetes.io/service-name: good}}
addressType: IPv4
ports: [{port: %d}]
endpoints: [{addresses: [%s]}]
`, endpointPort, ep1Addr))
	d.configure(fmt.Sprintf("[source.file]\npaths = [%q]\n", dir))
	d.start()
	took := l.waitFor(l.extendLimit(10*time.Second), answers(l.client, at(nodeAddr, 30080), "ep1"))
	l.waitFor(longTimeout, d.healthy)
	most := d.memory(true)
	if most > 256 {
		t.Errorf("the daemon took %d MiB", most)
	}
	t.Logf("the good Service was served after %s; memory: at most %d MiB", took, most)
	for _, words := range [][]string{
		{"1-bomb.yaml", "after alias expansion"},
		{"2-sparse.json", "16 MiB"},
		{"3-pipe.yaml", "not a regular file"},
		{"4-kmsg.yaml"},
		{"5-faults.yaml", "19980 more faults"},
	} {
		l.waitFor(longTimeout, d.logged(words...))
	}
}
