package nodeinfo

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

// Little-endian words, as x86 and arm64 have them.
const tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 102 1 0000000000000000 100 0 0 10 0
   2: 010200C0:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0000000000000000 100 0 0 10 0
   3: 010200C0:8000 020200C0:01BB 01 00000000:00000000 00:00000000 00000000     0        0 104 1 0000000000000000 100 0 0 10 0
`

const udp6Table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
    1: B80D0120000000000000000001000000:14E9 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 201 2 0000000000000000 0
    2: 0000000000000000FFFF0000010200C0:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 202 2 0000000000000000 0
    3: B80D0120000000000000000001000000:9000 B80D0120000000000000000002000000:0035 01 00000000:00000000 00:00000000 00000000     0        0 203 2 0000000000000000 0
`

// What accepts connections or datagrams from anywhere listens; connections do not.
func TestParseSockets(t *testing.T) {
	for text, c := range map[string]struct {
		protocol plan.Protocol
		want     []string
	}{
		tcpTable:  {plan.TCP, []string{"tcp 0.0.0.0:22", "tcp 127.0.0.1:8080", "tcp 192.0.2.1:80"}},
		udp6Table: {plan.UDP, []string{"udp [2001:db8::1]:5353", "udp 192.0.2.1:53"}},
	} {
		found, err := parseSockets(strings.NewReader(text), c.protocol)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range found {
			got = append(got, s.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for _, line := range []string{"0: 00", "0: 00000000 0 0A 0 0 0 0 0 7", "0: zz:1 0 0A 0 0 0 0 0 7", "0: 0000:1 0 0A 0 0 0 0 0 7", "0: 00000000:1 0 0A 0 0 0 0 0 x"} {
		if got, err := parseSockets(strings.NewReader("heading\n"+line+"\n"), plan.TCP); err == nil {
			t.Errorf("%q: got %v", line, got)
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
	if network, at, _ := strings.Cut(addr, " "); network == "udp" {
		_, err = net.ListenPacket(network, at)
	} else {
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
	for _, addr := range []string{"tcp4 0.0.0.0:22", "tcp [::]:80", "tcp 127.0.0.1:81", "tcp [::1]:82", "tcp [2001:db8::1]:83", "udp 192.0.2.1:53"} {
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
