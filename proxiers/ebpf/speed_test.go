package ebpf

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/plantest"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// way is one by which a connection gets to an endpoint.
type way struct {
	name string
	to   netip.AddrPort
	// settings are those of the programs.
	settings socketsSettings
}

// TestConnectionSpeed measures a connection with one question, each way in turn, beside many Services. It is for people, who compare the ratios:
// with EBPF_SPEED it judges them; without, it shows that what it measures is there.
func TestConnectionSpeed(t *testing.T) {
	n, services := 20, 100
	_, forPeople := os.LookupEnv("EBPF_SPEED")
	if forPeople {
		n, services = 4000, 10_000
	}
	w := newWorld(t)
	list := w.service(200, w.endpoints[0])
	to := map[plan.Family]netip.AddrPort{plan.IPv4: netip.MustParseAddrPort("10.99.0.1:80"), plan.IPv6: vip(plan.IPv6, 200)}
	for _, svc := range list {
		svc.Frontends[0].Addr = to[svc.Family].Addr()
	}
	node := *plantest.Node()
	node.HostAddrs = w.lab.Node.Addrs
	w.sync(proxiers.NewChange(nil, plantest.Plan(&node, append(plantest.Many(services, 5), list...)...)))
	w.needsPackets()
	for _, f := range both {
		direct := netip.AddrPortFrom(w.endpoints[0].Addr(vip(f, 200).Addr()), endpointPort)
		on, off := w.proxier.shortcuts.config, socketsSettings{}
		ways := []way{{"direct", direct, on}, {"BPF", to[f], on}, {"nftables", to[f], off}}
		for _, from := range []*netlab.Host{w.lab.Node, w.other} {
			medians := w.measure(from, n, ways)
			bpf, nft := ratio(medians[1], medians[0]), ratio(medians[1], medians[2])
			t.Logf("%s from %s: direct %v, BPF %v, nftables %v: BPF is %.3f of direct, %.3f of nftables", f, cmp.Or(from.Name, "the host"), medians[0], medians[1], medians[2], bpf, nft)
			if !forPeople {
				continue
			}
			if from == w.lab.Node && (bpf > 1.03 || nft > 0.90) {
				t.Errorf("the host's connections: at most 1.03 of direct and 0.90 of nftables are wanted")
			}
			if from != w.lab.Node && nft > 1 {
				t.Errorf("connections from elsewhere are slower than with nftables")
			}
		}
	}
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// measure gives the median of each way.
func (w *world) measure(from *netlab.Host, n int, ways []way) (medians []time.Duration) {
	w.Helper()
	took := make([][]time.Duration, len(ways))
	if err := from.Do(func() error {
		for range n {
			for i, way := range ways {
				if err := w.proxier.shortcuts.configure(way.settings); err != nil {
					return err
				}
				start := time.Now()
				if err := connectOnce("tcp", way.to); err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(start))
			}
		}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	for _, list := range took {
		slices.Sort(list)
		medians = append(medians, list[len(list)/2])
	}
	return medians
}
