package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// The names of the columns.
const (
	directName  = "direct"
	haproxyName = "haproxy"
	socketName  = "socket-proxyd"
	socatName   = "socat"
)

// socketProxyd is where systemd installs it, on Debian and Fedora alike.
const socketProxyd = "/lib/systemd/systemd-socket-proxyd"

// manyConnections is a limit that no measure reaches.
const manyConnections = 20000

func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// direct is the way without a relay.
func direct() *relay { return &relay{name: directName, addr: endpointAddr} }

// newHAProxy is HAProxy with what it cannot do without. Its limit of connections follows from the
// limit of file descriptors unless it is set, and its threads from the CPUs.
func newHAProxy(dir string) (*relay, error) {
	r := &relay{name: haproxyName, addr: loopback(20001)}
	path := filepath.Join(dir, "haproxy.cfg")
	r.argv = []string{"haproxy", "-db", "-f", path}
	config := fmt.Sprintf(`defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen relay
  bind %s
  server endpoint %s
`, r.addr, endpointAddr)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("configuration of HAProxy: %w", err)
	}
	return r, nil
}

// newSocketProxyd gets its socket as systemd hands it over (sd_listen_fds(3)).
func newSocketProxyd() *relay {
	return &relay{
		name:   socketName,
		addr:   loopback(20002),
		passed: true,
		argv: []string{
			"sh", "-c", `export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"`, "sh",
			socketProxyd, fmt.Sprintf("--connections-max=%d", manyConnections), endpointAddr.String(),
		},
	}
}

// newSocat has a longer queue than its default of 5, which would stall concurrent clients for a second.
func newSocat() *relay {
	r := &relay{name: socatName, addr: loopback(20003)}
	r.argv = []string{
		"socat", fmt.Sprintf("TCP4-LISTEN:%d,bind=%s,fork,reuseaddr,backlog=4096", r.addr.Port(), r.addr.Addr()),
		"TCP4:" + endpointAddr.String(),
	}
	return r
}
