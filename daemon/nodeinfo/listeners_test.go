package nodeinfo

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// inetDiag is a struct inet_diag_msg.
func inetDiag(family byte, addr string, port uint16, inode uint32) []byte {
	m := make([]byte, 72)
	m[0] = family
	binary.BigEndian.PutUint16(m[4:], port)
	copy(m[8:], netip.MustParseAddr(addr).AsSlice())
	binary.NativeEndian.PutUint32(m[68:], inode)
	return m
}

func TestParseSocket(t *testing.T) {
	for want, m := range map[string][]byte{
		"tcp 0.0.0.0:22":         inetDiag(unix.AF_INET, "0.0.0.0", 22, 7),
		"tcp 192.0.2.1:80":       inetDiag(unix.AF_INET, "192.0.2.1", 80, 7),
		"tcp [::]:22":            inetDiag(unix.AF_INET6, "::", 22, 7),
		"tcp [2001:db8::1]:5353": inetDiag(unix.AF_INET6, "2001:db8::1", 5353, 7),
		"tcp 192.0.2.1:53":       inetDiag(unix.AF_INET6, "::ffff:192.0.2.1", 53, 7),
	} {
		if got, err := parseSocket(m, plan.TCP); err != nil || got.String() != want || got.inode != 7 {
			t.Errorf("got %v of inode %d, %v; want %s of 7", got, got.inode, err, want)
		}
	}
	for n := range diagMessage {
		if got, err := parseSocket(make([]byte, n), plan.TCP); err == nil {
			t.Errorf("%d bytes: got %v", n, got)
		}
	}
}

// listeningEnv has the test binary listen, as at "tcp 192.0.2.1:80", until its standard input ends.
const listeningEnv = "NODEINFO_LISTEN"

func TestMain(m *testing.M) {
	addr := os.Getenv(listeningEnv)
	if addr == "" {
		os.Exit(m.Run())
	}
	var err error
	switch network, at, _ := strings.Cut(addr, " "); network {
	case "udp":
		_, err = net.ListenPacket(network, at)
	case "connected":
		_, err = net.Dial("udp", at)
	default:
		_, err = net.Listen(network, at)
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// program starts another program that listens in the lab; stop ends it.
func (l *lab) program(addr string) (stop func()) {
	l.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cmd.Environ(), listeningEnv+"="+addr)
	in, err := cmd.StdinPipe()
	if err != nil {
		l.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		l.Fatalf("nobody listens at %s", addr)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// listeners gives those of now, however old the last reading is.
func (l *lab) listeners() (out []string) {
	l.refresh(true)
	for _, one := range l.Host().Listeners {
		out = append(out, one.String())
	}
	return out
}

// Other programs' listeners are known, this process's own are not among them.
func TestListeners(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0", "addr add 2001:db8::1/64 dev v0 nodad")...)
	own, err := net.Listen("tcp", "192.0.2.1:30000")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	var stops []func()
	for _, addr := range []string{"tcp4 0.0.0.0:22", "tcp [::]:80", "tcp 127.0.0.1:81", "tcp [::1]:82", "tcp [2001:db8::1]:83", "udp 192.0.2.1:53", "connected 192.0.2.1:54"} {
		stops = append(stops, l.program(addr))
	}
	want := []string{"tcp 0.0.0.0:22", "tcp [::]:80", "tcp [2001:db8::1]:83", "udp 192.0.2.1:53"}
	if got := l.listeners(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	select {
	case <-l.Changed():
	default:
		t.Error("new listeners are no change")
	}
	all, err := Listening()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"tcp 127.0.0.1:81", "tcp [::1]:82", "tcp 192.0.2.1:30000"} {
		if !slices.ContainsFunc(all, func(l Listener) bool { return l.String() == addr }) {
			t.Errorf("Listening lacks %s: %v", addr, all)
		}
	}
	stops[0]()
	if got := l.listeners(); !slices.Equal(got, want[1:]) {
		t.Errorf("after one ended: got %q, want %q", got, want[1:])
	}
	for _, stop := range stops[1:] {
		stop()
	}
	l.quietListeners()
}

// quietListeners wants no listener, and no change when nothing changed.
func (l *lab) quietListeners() {
	l.Helper()
	if got := l.listeners(); len(got) > 0 {
		l.Errorf("got %q, want none", got)
	}
	<-l.Changed()
	l.listeners()
	l.quiet()
}

// Networks of IPv4 have a broadcast and a network address, but for those of one or two addresses.
func TestBroadcasts(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/26 dev v0", "addr add 198.51.100.1/31 dev v0", "addr add 203.0.113.1/32 dev v0",
		"addr add 10.0.0.1/9 broadcast 10.1.1.1 dev v0", "addr add 2001:db8::1/64 dev v0 nodad")...)
	want := []string{"10.0.0.0", "10.1.1.1", "10.127.255.255", "192.0.2.0", "192.0.2.63"}
	if got := texts(l.Host().Broadcasts); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The networks are those of devices that lead off this host.
func TestNetworks(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/26 dev v0", "addr add 203.0.113.1/32 dev v0", "addr add 198.51.100.1 peer 198.51.100.9/32 dev v0",
		"addr add 2001:db8::1/64 dev v0 nodad", "addr add 10.97.0.1/16 dev lo")...)
	want := []string{"192.0.2.0/26", "198.51.100.1/32", "198.51.100.9/32", "203.0.113.1/32", "2001:db8::/64"}
	got := func() (out []string) {
		for _, n := range l.Host().Networks {
			out = append(out, n.String())
		}
		return out
	}
	if !slices.Equal(got(), want) {
		t.Errorf("got %q, want %q", got(), want)
	}
	l.ip("addr add 192.0.2.1/25 dev v0") // the same address in a wider network
	l.ip("addr del 192.0.2.1/26 dev v0")
	for deadline := time.After(30 * time.Second); got()[0] != "192.0.2.0/25"; {
		select {
		case <-l.Changed():
		case <-deadline:
			t.Fatalf("got %q", got())
		}
	}
}
