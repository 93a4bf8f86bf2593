package ebpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

// Of the random packets, the tc program translates exactly those that start a new connection that the plan forwards.
// The program leaves connections to frontends with source ranges or session affinity to nftables.
func TestPacketsEqualDecide(t *testing.T) {
	frames, flushed := 5_000, 5_000
	if n := os.Getenv("EBPF_FRAMES"); n != "" {
		if _, err := fmt.Sscan(n, &frames); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	list := w.frameServices()
	node := *plantest.Node()
	node.HostAddrs, node.NodePortAddrs = w.lab.Node.Addrs, []netip.Addr{netlab.NodeAddr4, netlab.NodeAddr6}
	node.PodSources = []netip.Prefix{
		netip.MustParsePrefix("10.244.9.0/24"),
		netip.MustParsePrefix("fd00:10:244:9::/64"),
	}
	w.proxier.shortcuts.tcRate = 1e9 // no rate limit
	w.sync(proxiers.NewChange(nil, plantest.Plan(&node, list...)))
	w.needsPackets()
	l, err := netlink.LinkByName(w.other.Name)
	if err != nil {
		t.Fatal(err)
	}
	device := make([]byte, 192) // a struct __sk_buff in which ingress_ifindex is set
	binary.NativeEndian.PutUint32(device[36:], uint32(l.Attrs().Index))

	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	tracked, taken := map[string]bool{}, 0
	for i := range frames {
		if i%flushed == 0 {
			clear(tracked)
			if err := w.lab.Node.FlushConntrack(); err != nil {
				t.Fatal(err)
			}
		}
		frame := w.frame(r)
		p, want := readFrame(frame)
		if want {
			d := w.plan.Decide(plan.Packet{
				Src: p.from.Addr(), Dst: p.to, Protocol: p.protocol,
				InInterface: w.other.Name,
			})
			want = d.Verdict == plan.Forward && d.Origin != plan.FromHost && d.Frontend.AllowFrom == nil &&
				d.Service.Affinity == 0
		}
		if tuple := fmt.Sprint(p); want && tracked[tuple] {
			want = false
		} else if want {
			tracked[tuple] = true
			taken++
		}
		before := w.tcConnections()
		if result, err := w.proxier.shortcuts.attacher.program.Run(&ebpf.RunOptions{
			Data:    frame,
			Context: device,
		}); err != nil || result != 1<<32-1 {
			t.Fatalf("frame %x: %d, %v", frame, int32(result), err)
		}
		if got := w.tcConnections() > before; got != want {
			t.Fatalf("seed %d: taken %v, and the plan says %v: %+v\n%x", seed, got, want, p, frame)
		}
	}
	t.Logf("%d frames, %d taken, 0 differences", frames, taken)
	if taken < frames/100 {
		t.Error("these are too few to mean anything")
	}
}

// frameServices returns Services with and without a NodePort, with session affinity, with source ranges, and with a
// Drop verdict.
func (w *world) frameServices() (list []*plan.ServicePort) {
	for n := 1; n <= 4; n++ {
		for _, svc := range w.service(n, w.endpoints...) {
			switch n {
			case 2:
				svc.Affinity = time.Hour
			case 3:
				svc.Frontends[0].AllowFrom = []netip.Prefix{netip.PrefixFrom(w.other.Addr(svc.Frontends[0].Addr),
					1).Masked()}
			case 4:
				svc.Frontends[0].Routes[plan.FromOutside] = plan.Route{Verdict: plan.Drop}
			default:
				svc.Frontends = append(svc.Frontends,
					plan.Frontend{Kind: plan.NodePort, Port: 30080, Routes: plantest.ClusterIPRoutes})
			}
			list = append(list, svc)
		}
	}
	return list
}

func (w *world) frame(r *rand.Rand) []byte {
	f := both[r.IntN(2)]
	to := []netip.Addr{
		vip(f, 1+r.IntN(5)).Addr(), vip(f, 1).Addr(), w.lab.Node.Addr(vip(f, 1).Addr()),
		w.endpoints[0].Addr(vip(f, 1).Addr()),
	}[r.IntN(4)]
	from := to.As16()
	pod := w.other.Addr(vip(f, 1).Addr()).As16()
	switch r.IntN(4) {
	case 0:
		from = w.lab.Node.Addr(vip(f, 1).Addr()).As16()
	case 1:
		from = pod
	default:
		from = pod
		from[r.IntN(4)+12] = byte(r.Uint32())
		from[r.IntN(4)+12] = byte(r.Uint32())
	}
	protocol := []byte{6, 6, 6, 6, 6, 17, 132, 1}[r.IntN(8)]
	body := binary.BigEndian.AppendUint16(nil, uint16(r.Uint32()))
	body = binary.BigEndian.AppendUint16(body, []uint16{servicePort, servicePort, 30080, endpointPort}[r.IntN(4)])
	body = append(body, make([]byte, 8)...)
	body = append(body, 5<<4, []byte{2, 2, 2, 0x10, 0x12, 4, 1, 0xc2}[r.IntN(8)])
	body = append(body, make([]byte, 6)...)

	frame := make([]byte, 12)
	if f == plan.IPv4 {
		frame = append(frame, 8, 0)
		options := r.IntN(3) * r.IntN(2)
		h := []byte{0x45 + byte(options), 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
		h = append(append(h, from[12:]...), to.AsSlice()...)
		frame = append(append(frame, h...), make([]byte, 4*options)...)
	} else {
		frame = append(frame, 0x86, 0xdd)
		chain, next := []byte{}, protocol
		for range r.IntN(6) * r.IntN(2) {
			kind, units := []byte{0, 43, 44, 60}[r.IntN(4)], r.IntN(2)
			if kind == 44 {
				units = 0
			}
			e := make([]byte, 8*(units+1))
			e[0], e[1] = next, byte(units)
			chain, next = append(e, chain...), kind
		}
		h := append([]byte{0x60, 0, 0, 0, 0, 0, next, 64}, from[:]...)
		frame = append(append(append(frame, h...), to.AsSlice()...), chain...)
	}
	frame = append(frame, body...)
	for range r.IntN(4) * r.IntN(2) {
		frame[14+r.IntN(len(frame)-14)] = byte(r.Uint32())
	}
	if r.IntN(10) == 0 {
		least := 14 + map[plan.Family]int{plan.IPv4: 20, plan.IPv6: 40}[f] // the kernel rejects shorter frames
		frame = frame[:least+r.IntN(len(frame)-least)]
	}
	return frame
}

type framePacket struct {
	from, to netip.AddrPort
	protocol plan.Protocol
}

// readFrame parses a frame and reports whether the frame's packet can start a connection.
func readFrame(frame []byte) (p framePacket, begins bool) {
	header, v4 := frame[14:], frame[12] == 8
	var from, to netip.Addr
	var next byte
	if v4 {
		if len(header) < 20 || header[0]&15 < 5 || binary.BigEndian.Uint16(header[6:])&0x1fff != 0 ||
			len(header) < int(header[0]&15)*4 {
			return p, false
		}
		from, to, next = netip.AddrFrom4([4]byte(header[12:])), netip.AddrFrom4([4]byte(header[16:])), header[9]
		header = header[header[0]&15*4:]
	} else {
		if len(header) < 40 {
			return p, false
		}
		from, to, next = netip.AddrFrom16([16]byte(header[8:])), netip.AddrFrom16([16]byte(header[24:])), header[6]
		header = header[40:]
		for range 4 {
			if next != 0 && next != 43 && next != 44 && next != 60 {
				break
			}
			if len(header) < 4 || next == 44 && binary.BigEndian.Uint16(header[2:])&0xfff8 != 0 {
				return p, false
			}
			size := 8
			if next != 44 {
				size += int(header[1]) * 8
			}
			next = header[0]
			if len(header) < size {
				return p, false
			}
			header = header[size:]
		}
	}
	if next != 6 || len(header) < 14 || header[13]&0x17 != 2 {
		return p, false
	}
	p.protocol = plan.TCP
	p.from, p.to = netip.AddrPortFrom(from, binary.BigEndian.Uint16(header)),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(header[2:]))
	return p, true
}
