package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// watchdogTime is the watchdog timeout in the daemon's systemd unit. longestSilence is the documented maximum time
	// between two watchdog pings.
	watchdogTime   = 30 * time.Second
	longestSilence = 10 * time.Second
	// programmingLimit is the maximum time for programming all Services of a test case on a busy machine.
	programmingLimit = 15 * time.Minute
)

// bulk describes similar Services whose endpoints receive no connections.
type bulk struct {
	name                                 string
	services, ports, endpoints, external int
}

// Many Services together can be huge even if each Service is within the size limit for a single Service. The API server
// admits any number of such Services.
func TestBigServicesDoNotAffectOthers(t *testing.T) {
	for _, c := range []bulk{
		{name: "160,000 endpoints x ports", services: 4, ports: 40, endpoints: 1000},
		{name: "13,500 ports x addresses", services: 15, ports: 20, endpoints: 1, external: 45},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, memoryLimits{}) })
	}
}

// With this test's Services, the daemon once sent no watchdog ping for a minute, and nft used 3.7 GB of memory.
func TestNightlyBigServices(t *testing.T) {
	for _, c := range []bulk{
		{name: "a million endpoints x ports", services: 25, ports: 40, endpoints: 1000},
		{name: "a million endpoints x ports of one Service", services: 1, ports: 1000, endpoints: 1000},
		{name: "a million ports x addresses of one Service", services: 1, ports: 500, endpoints: 1, external: 2000},
		{name: "20,000 ports", services: 1, ports: 20_000, endpoints: 1},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, memoryLimits{}) })
		t.Run(c.name+" with little memory for nft",
			func(t *testing.T) { c.run(t, memoryLimits{programMemory: 200 << 20}) })
		t.Run(c.name+" in a control group of 256 MB",
			func(t *testing.T) { c.run(t, memoryLimits{groupMemory: 256 << 20}) })
	}
}

// memoryLimits holds two memory limits in bytes: one for each nft process, and one for the daemon and its child
// processes together.
type memoryLimits struct{ programMemory, groupMemory int }

func (c bulk) run(t *testing.T, around memoryLimits) {
	l := newLab(t)
	d := l.newDaemon()
	h := l.newPingReceiver(d)
	d.limitMemory(around)
	d.startReady()
	n := l.newNamespace()
	_, early := n.createWeb("early")
	l.waitFor(longTimeout, answers(l.client, early, "ep1"))

	if err := n.create(c); err != nil {
		t.Logf("the API server refuses it: %v", err)
		return
	}
	meanwhile := n.soon("meanwhile")
	for i := range c.services { // each stored Service must be in force, or a fault must name it
		l.waitFor(programmingLimit, d.hasStored(c.endpoint(i, c.endpoints-1)))
	}
	synced := n.soon("afterwards")
	l.must(d.alive())

	began := time.Now()
	if out, errs, code := d.edgeway("reload"); code != 0 {
		t.Fatalf("edgeway reload ended with %d: %s%s", code, out, errs)
	}
	l.waitFor(programmingLimit, d.hasFullSyncs(2))
	reload := time.Since(began)
	after := n.soon("after-reload")
	l.must(answers(l.client, early, "ep1")())
	l.must(d.alive())

	silence := h.longestPause()
	if silence > longestSilence {
		t.Errorf("the heart was silent for %.1f s, want at most %s", silence.Seconds(), longestSilence)
	}
	daemon := d.peak()
	all := d.stopAndMeasure()
	t.Logf("| %s | daemon %d MB, daemon or nft %d MB | silence %.1f s | a new Service after %.1f s, %.1f s, %.1f s | reload %.1f s |",
		c.name, daemon>>20, all>>20, silence.Seconds(), meanwhile.Seconds(), synced.Seconds(), after.Seconds(),
		reload.Seconds())
}

func (c bulk) service(i int) string { return fmt.Sprintf("big-%d-of-%d", i, c.services) }

func (c bulk) endpoint(i, j int) string { return fmt.Sprintf("10.%d.%d.%d", 200+i, j/250, 1+j%250) }

// create creates the Services and EndpointSlices that c describes. If the API server rejects a Service or an
// EndpointSlice, create returns the API server's error.
func (n *namespace) create(c bulk) error {
	var group errgroup.Group
	group.SetLimit(4)
	for i := range c.services {
		group.Go(func() error {
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: c.service(i)}}
			for j := range c.external {
				svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs,
					fmt.Sprintf("198.%d.%d.%d", 18+i%2, 8*(i/2)+j/250, 1+j%250))
			}
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: c.service(i), Labels: map[string]string{discoveryv1.LabelServiceName: c.service(i)}},
				AddressType: discoveryv1.AddressTypeIPv4,
			}
			for j := range c.ports {
				name := fmt.Sprint("p", j)
				svc.Spec.Ports = append(svc.Spec.Ports,
					corev1.ServicePort{Name: name, Port: int32(1000 + j), TargetPort: intstr.FromInt32(endpointPort)})
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
					Name: &name, Port: new(int32(endpointPort)),
					Protocol: new(corev1.ProtocolTCP),
				})
			}
			for j := range c.endpoints {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{c.endpoint(i, j)}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
				})
			}
			if _, err := sharedState.admin.Core.Services(n.name).Create(n.t.Context(), svc,
				metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := sharedState.admin.Discovery.EndpointSlices(n.name).
				Create(n.t.Context(), slice, metav1.CreateOptions{})
			return err
		})
	}
	n.t.Cleanup(func() {
		for i := range c.services {
			n.remove(c.service(i))
		}
	})
	err := group.Wait()
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsRequestEntityTooLargeError(err) {
		n.t.Fatal(err)
	}
	return err
}

func (n *namespace) soon(name string) time.Duration {
	n.t.Helper()
	limit := n.extendLimit(5 * time.Second)
	began := time.Now()
	_, nodePort := n.createWeb(name)
	n.waitFor(limit, answers(n.client, nodePort, "ep1"))
	return time.Since(began)
}

// limitMemory sets memory limits, which take effect the next time the daemon starts.
func (d *daemon) limitMemory(around memoryLimits) {
	d.t.Helper()
	if around.programMemory > 0 {
		d.wrapNFT(fmt.Sprintf("exec prlimit --as=%d nft \"$@\"\n", around.programMemory))
	}
	if around.groupMemory > 0 {
		d.group = d.createMemoryGroup(around.groupMemory)
	}
}

// createMemoryGroup creates a control group (version 1 or 2) with a memory limit in bytes, and returns the path to the
// group's cgroup.procs file.
func (d *daemon) createMemoryGroup(limit int) (procs string) {
	d.t.Helper()
	for _, kind := range []struct{ above, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(kind.above, fmt.Sprintf("edgeway-e2e-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		d.t.Cleanup(func() {
			d.kill()
			d.waitFor(longTimeout, func() error { return os.Remove(dir) })
		})
		if os.WriteFile(filepath.Join(dir, kind.file), []byte(strconv.Itoa(limit)), 0) == nil {
			return filepath.Join(dir, "cgroup.procs")
		}
	}
	d.t.Fatal("this machine has no control groups for memory")
	return ""
}

func (d *daemon) alive() error {
	select {
	case <-d.ended:
		return errors.New("the daemon has ended")
	default:
		return nil
	}
}

// hasFullSyncs returns an error unless the log reports at least the wanted number of full syncs by the nftables
// backend.
func (d *daemon) hasFullSyncs(want int) func() error {
	return func() error {
		log, err := os.ReadFile(d.logFile())
		if n := strings.Count(string(log), `msg="full sync done" stage=nftables`); err == nil && n < want {
			err = fmt.Errorf("%d full syncs, want %d", n, want)
		}
		return err
	}
}

func (d *daemon) peak() int64 {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	d.must(err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			d.must(err)
			return kB << 10
		}
	}
	d.t.Fatal("no VmHWM")
	return 0
}

// stopAndMeasure stops the daemon and returns the peak memory, in bytes, of the daemon or of its largest child process,
// whichever is larger.
func (d *daemon) stopAndMeasure() int64 {
	d.t.Helper()
	cmd := d.cmd
	d.stop()
	return int64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) << 10 //nolint:unconvert // int32 on 32-bit ARM
}

// pingReceiver stands in for a service manager and receives the watchdog pings.
type pingReceiver struct {
	mu      sync.Mutex
	last    time.Time
	silence time.Duration
}

// newPingReceiver returns a receiver for the pings that the daemon sends after its next start.
func (l *lab) newPingReceiver(d *daemon) *pingReceiver {
	l.t.Helper()
	path := filepath.Join(d.dir, "heart")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	l.must(err)
	l.t.Cleanup(func() { _ = conn.Close() })
	d.env = append(d.env, "NOTIFY_SOCKET="+path, fmt.Sprintf("WATCHDOG_USEC=%d", watchdogTime.Microseconds()))
	h := &pingReceiver{}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if strings.Contains(string(buf[:n]), "WATCHDOG=1") {
				h.beat()
			}
		}
	}()
	return h
}

func (h *pingReceiver) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.last.IsZero() {
		h.silence = max(h.silence, now.Sub(h.last))
	}
	h.last = now
}

// longestPause returns the longest time without a ping, measured from the first ping.
func (h *pingReceiver) longestPause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.silence, time.Since(h.last))
}
