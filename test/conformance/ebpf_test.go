package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bpf "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"edgeway/proxiers"
	"edgeway/proxiers/ebpf"
	"edgeway/proxiers/plan"
)

func TestEbpf(t *testing.T) { runEbpf(t, ebpfBackend(false)) }

func TestEbpfTC(t *testing.T) { runEbpf(t, ebpfBackend(true)) }

func runEbpf(t *testing.T, b Backend) {
	// Unlike an nft table, pinned maps and programs outlive the network namespace.
	t.Cleanup(func() {
		if err := b.Cleanup(context.WithoutCancel(t.Context()), silentEnv()); err != nil {
			t.Error(err)
		}
	})
	Run(t, b)
}

// ebpfDir is the directory in which this process pins BPF objects. Each process has its own directory, because several
// processes may test the ebpf backend at the same time.
var ebpfDir = filepath.Join(os.TempDir(), fmt.Sprintf("edgeway-bpf-%d", os.Getpid()))

func ebpfBackend(tc bool) Backend {
	nftables := nftablesBackend().Damages
	component := ebpf.ComponentIn(ebpfDir)
	create := component.New
	component.New = func(ctx context.Context, env proxiers.Env) (proxiers.Proxier, error) {
		env.Settings = map[string]any{"tc": tc}
		return create(ctx, env)
	}
	if tc {
		component.Name += "-tc"
	}
	b := Backend{
		Component:      component,
		CountsLoopback: true,
		Dump:           dumpEbpf,
		Shortcut:       &Shortcut{IsEligible: bpfEligibility(tc), Count: countBPFConnections},
		Sequences:      15, // as many as for the nftables backend
		Damages: map[string]func(context.Context) error{
			"all rules are flushed":        nftables["all rules are flushed"],
			"an element is added":          nftCommand("add element ip edgeway-ebpf cluster-ips { 203.0.113.99 }"),
			"a program is detached":        detachALink,
			"the pin of a link is removed": func(context.Context) error { return os.Remove(pinned("link-sendmsg6")) },
			"all that is pinned goes":      func(context.Context) error { return os.RemoveAll(filepath.Join(ebpfDir, "v2")) },
		},
	}
	for _, name := range []string{"frontends", "slots", "members", "addresses"} {
		b.Damages["the map "+name+" is emptied"] = func(context.Context) error { return emptyMap(name) }
	}
	return b
}

// bpfEligibility returns a function that reports whether BPF must handle a connection. nftables handles masqueraded
// connections from the host's bound sockets. nftables also handles connections from other hosts and from pods, except
// TCP connections if tc is true.
func bpfEligibility(tc bool) func(*plan.Plan, plan.Packet, plan.Decision, bool) bool {
	return func(p *plan.Plan, pkt plan.Packet, d plan.Decision, unbound bool) bool {
		if d.Verdict != plan.Forward || pkt.Protocol == plan.SCTP || pkt.Dst.Addr().IsLoopback() ||
			d.Frontend.AllowFrom != nil || d.Service.Affinity != 0 {
			return false
		}
		if pkt.InInterface != "" {
			return d.Origin != plan.FromHost && tc && pkt.Protocol == plan.TCP
		}
		return d.Origin == plan.FromHost && (unbound || !d.SNAT && !pkt.Src.IsLoopback() &&
			slices.Contains(p.Node.HostAddrs, pkt.Src))
	}
}

// countBPFConnections returns the sum of these counters from bpf/maps.h: connected TCP sockets, connected UDP sockets,
// first datagrams of unconnected sockets, new connections in the tc program, and new connections that exceeded the tc
// program's rate limit.
func countBPFConnections() (n int, err error) {
	m, err := bpf.LoadPinnedMap(pinned("counters"), nil)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	const limited = 14
	for _, i := range []uint32{0, 1, 2, 3, limited} {
		var perCPU []uint64
		if err := m.Lookup(i, &perCPU); err != nil {
			return 0, err
		}
		for _, count := range perCPU {
			n += int(count)
		}
	}
	return n, nil
}

func pinned(name string) string { return filepath.Join(ebpfDir, "v2", name) }

func detachALink(context.Context) error {
	l, err := link.LoadPinnedLink(pinned("link-recvmsg4"), nil)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Detach()
}

func emptyMap(name string) error {
	m, err := bpf.LoadPinnedMap(pinned(name), nil)
	if err != nil {
		return err
	}
	defer m.Close()
	return forEachElement(m, func(key, _ []byte) error { return m.Delete(key) })
}

// forEachElement first collects all elements of a map, and then calls visit for each element.
func forEachElement(m *bpf.Map, visit func(key, value []byte) error) error {
	var keys, values [][]byte
	var key, value []byte
	elements := m.Iterate()
	for elements.Next(&key, &value) {
		keys, values = append(keys, slices.Clone(key)), append(values, slices.Clone(value))
	}
	if err := elements.Err(); err != nil {
		return err
	}
	for i := range keys {
		if err := visit(keys[i], values[i]); err != nil {
			return err
		}
	}
	return nil
}

// dumpEbpf returns the nft table, the names of the BPF links, and the contents of the BPF maps. The dump includes each
// frontend's endpoints, but omits the IDs by which a frontend refers to its endpoints.
func dumpEbpf(ctx context.Context) (string, error) {
	text, err := dumpTable(ctx, "edgeway-ebpf")
	if err != nil {
		return "", err
	}
	lines, err := dumpMaps()
	if errors.Is(err, fs.ErrNotExist) {
		return text, nil
	}
	return text + strings.Join(lines, "\n"), err
}

func dumpMaps() (lines []string, err error) {
	links, err := filepath.Glob(pinned("link-*"))
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		lines = append(lines, filepath.Base(l))
	}
	slots, services := map[string]string{}, map[string]string{}
	read := func(name string, visit func(key, value []byte)) {
		m, e := bpf.LoadPinnedMap(pinned(name), nil)
		if e != nil {
			err = errors.Join(err, e)
			return
		}
		defer m.Close()
		err = errors.Join(err, forEachElement(m, func(key, value []byte) error { visit(key, value); return nil }))
	}
	read("slots", func(k, v []byte) { slots[string(k)] = at(v) })
	read("frontends", func(k, v []byte) {
		line := fmt.Sprintf("frontend %s protocol %d origin %d: flags %x", at(k), k[18], k[19], v[12:])
		for i := range v[8] { // the pools in the suite are small
			line += " " + slots[string(v[4:8])+string([]byte{i, 0, 0, 0})]
		}
		services[string(v[:4])] += " " + at(k)
		lines = append(lines, line)
	})
	for s, list := range services {
		words := strings.Fields(list)
		slices.Sort(words)
		services[s] = strings.Join(words, " ")
	}
	read("members", func(k, _ []byte) {
		lines = append(lines, fmt.Sprintf("member %s of %s", memberAt(k), services[string(k[16:20])]))
	})
	read("addresses", func(k, v []byte) {
		lines = append(lines, fmt.Sprintf("address %s: %d", netip.AddrFrom16([16]byte(k)).Unmap(), v[0]))
	})
	slices.Sort(lines)
	return lines, err
}

func at(b []byte) string {
	return fmt.Sprintf("%s:%d", netip.AddrFrom16([16]byte(b)).Unmap(), int(b[16])<<8|int(b[17]))
}

func memberAt(k []byte) string {
	return fmt.Sprintf("%s:%d", netip.AddrFrom16([16]byte(k)).Unmap(), int(k[20])<<8|int(k[21]))
}
