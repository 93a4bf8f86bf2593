package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/links"
	"edgeway/proxiers/plan"
)

// deviceAttacher keeps the tc program attached to the network devices at which connections arrive. Bridge ports, bond
// members and VRF members do not need the program, because it is attached to the bridge, bond or VRF device. On a VRF
// member, the program would also look up routes in the wrong routing table.
type deviceAttacher struct {
	logger *slog.Logger
	links  *links.Links

	program *ebpf.Program
	id      ebpf.ProgramID
	ranges  typedMap[packetsPodRange, uint8]
	pods    typedMap[uint32, uint8]
	sources typedMap[uint32, uint8]
	node    *plan.Node
	// attachments holds the attachment for each device. rejections holds the error for each device that rejects the
	// program.
	attachments map[int]attachment
	rejections  map[int]string
	// useFilters is set on kernels before Linux 6.6, which need filters instead of links.
	useFilters bool
	wait       sync.WaitGroup
}

type attachment interface {
	// isAttached reports whether the program with the given ID is still attached.
	isAttached(ebpf.ProgramID) bool
	detach() error
}

func (p *deviceAttacher) use(o *objects) (err error) {
	p.program, p.ranges.Map, p.pods.Map, p.sources.Map = o.tcProgram, o.podRanges, o.podDevices, o.sources
	if p.program != nil {
		p.id, err = programID(p.program)
	}
	return err
}

// start writes the pod ranges, pod devices and host addresses to the maps, and attaches the tc program. start returns
// the address to store in the programs' Source setting.
func (p *deviceAttacher) start(n *plan.Node) (source uint32, err error) {
	if err := p.links.Watch(&p.wait); err != nil {
		return 0, err
	}
	p.links.Forget()
	p.node = nil
	if err := p.writePods(n); err != nil {
		return 0, err
	}
	if source, err = p.writeSources(); err != nil {
		return 0, err
	}
	p.node = n
	return source, p.updateDevices()
}

// isCurrent reports whether the maps contain the pod ranges, pod interfaces and host addresses of the node n.
func (p *deviceAttacher) isCurrent(n *plan.Node) bool {
	return p.node != nil && (p.node == n || slices.Equal(p.node.PodSources, n.PodSources) &&
		slices.Equal(p.node.PodInterfaces, n.PodInterfaces) && slices.Equal(p.node.HostAddrs, n.HostAddrs))
}

// writePods writes the pods' address ranges to a map. The caller must first stop the tc program.
func (p *deviceAttacher) writePods(n *plan.Node) error {
	want := map[packetsPodRange]uint8{}
	for _, r := range n.PodSources {
		want[rangeOf(r)] = 0
	}
	var gone []packetsPodRange
	var k packetsPodRange
	var v uint8
	have := p.ranges.Iterate()
	for have.Next(&k, &v) {
		if _, stays := want[k]; !stays {
			gone = append(gone, k)
		}
	}
	if err := errors.Join(have.Err(), p.ranges.remove(gone)); err != nil {
		return fmt.Errorf("write pod ranges: %w", err)
	}
	for k := range want { // replace uses batches, which fail for this type of map on Linux 6.1
		if err := p.ranges.Put(k, v); err != nil {
			return fmt.Errorf("write a pod range: %w", err)
		}
	}
	return nil
}

// writeSources fills the sources map with the addresses that the kernel masquerades with: the host's first address in
// each subnet, except link-local addresses. writeSources returns the address that the kernel uses for a device without
// an address (inet_select_addr in Linux 6.1 to 7.2).
func (p *deviceAttacher) writeSources() (source uint32, err error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return 0, fmt.Errorf("list addresses: %w", err)
	}
	slices.SortStableFunc(list, func(a, b netlink.Addr) int { return a.LinkIndex - b.LinkIndex })
	want := map[uint32]uint8{}
	for _, a := range list {
		if a.Scope != unix.RT_SCOPE_UNIVERSE || a.Flags&unix.IFA_F_SECONDARY != 0 {
			continue
		}
		ip := binary.NativeEndian.Uint32(a.IP.To4())
		want[ip] = 0
		if source == 0 {
			source = ip
		}
	}
	return source, replace(p.sources, want)
}

// replace replaces the contents of t with the elements in want.
func replace[K comparable](t typedMap[K, uint8], want map[K]uint8) error {
	have := map[K]uint8{}
	if err := t.forEach(func(k K, v uint8) { have[k] = v }); err != nil {
		return err
	}
	return errors.Join(t.remove(difference(have, want).keys), t.put(difference(want, have)))
}

func rangeOf(r netip.Prefix) packetsPodRange {
	out := packetsPodRange{Length: uint32(r.Bits())}
	if r.Addr().Is4() {
		out.Length += 96
	}
	out.Addr.Byte = r.Masked().Addr().As16()
	return out
}

func (p *deviceAttacher) updateDevices() error {
	devices, err := p.links.List()
	if err != nil {
		return err
	}
	maps.DeleteFunc(devices, func(_ int, d links.Device) bool { return d.Master != 0 })
	for index, a := range p.attachments {
		if _, stays := devices[index]; !stays {
			_ = a.detach() // the device and its program may no longer exist
			delete(p.attachments, index)
		}
	}
	if err := p.writeDevices(devices); err != nil {
		return err
	}
	maps.DeleteFunc(p.rejections, func(index int, _ string) bool { _, there := devices[index]; return !there })
	for index, d := range devices {
		if p.attachments[index] == nil || !p.attachments[index].isAttached(p.id) {
			p.attach(index, d.Name)
		}
	}
	return nil
}

// writeDevices writes the indexes of pod devices to a map. updateDevices then attaches the tc program to the devices.
func (p *deviceAttacher) writeDevices(devices map[int]links.Device) error {
	want := map[uint32]uint8{}
	for index, d := range devices {
		if slices.ContainsFunc(p.node.PodInterfaces,
			func(pattern string) bool { return plan.MatchInterface(pattern, d.Name) }) {
			want[uint32(index)] = 0
		}
	}
	if err := replace(p.pods, want); err != nil {
		return fmt.Errorf("write pod devices: %w", err)
	}
	return nil
}

// attach attaches the tc program to a device. If a device rejects the program, attach logs one warning and nftables
// forwards the device's connections.
func (p *deviceAttacher) attach(index int, name string) {
	before := p.attachments[index]
	if before != nil {
		_ = before.detach() // free the resources of the old attachment
		delete(p.attachments, index)
	}
	a, err := p.attachment(index)
	switch {
	case errors.Is(err, unix.ENODEV): // the device was just removed
	case err != nil:
		if p.rejections[index] != err.Error() {
			p.logger.Warn("network device rejects the BPF program, using nftables",
				"device", name, "error", err)
		}
		p.rejections[index] = err.Error()
	default:
		p.attachments[index] = a
		delete(p.rejections, index)
		if before != nil {
			p.logger.Warn("another program detached the BPF program, reattaching it",
				"device", name)
		}
	}
}

func (p *deviceAttacher) attachment(index int) (attachment, error) {
	if !p.useFilters {
		a, err := attachLink(index, p.program)
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return a, err
		}
		p.useFilters = true
	}
	return attachFilter(index, p.program)
}

// damaged reports whether another program has detached the tc program from a device.
func (p *deviceAttacher) damaged() bool {
	for _, a := range p.attachments {
		if !a.isAttached(p.id) {
			return true
		}
	}
	return false
}

// detachAll detaches the program from all devices. Connections that the program has handled continue, because
// connection tracking translates their packets.
func (p *deviceAttacher) detachAll() {
	for index, a := range p.attachments {
		if err := a.detach(); err != nil {
			p.logger.Warn("cannot remove the BPF program from a device", "index", index, "error", err)
		}
	}
	clear(p.attachments)
	clear(p.rejections)
}

// close detaches the program from the devices. When the process exits, the kernel removes links, but not the filters
// that kernels before Linux 6.6 need.
func (p *deviceAttacher) close() {
	p.links.Close()
	p.wait.Wait()
	p.detachAll()
}

// newDeviceAttacher returns a deviceAttacher that watches the calling thread's network namespace.
func newDeviceAttacher(env proxiers.Env, changed func()) (*deviceAttacher, error) {
	l, err := links.Open(env, changed)
	if err != nil {
		return nil, err
	}
	return &deviceAttacher{
		logger: env.Logger, links: l, attachments: map[int]attachment{}, rejections: map[int]string{},
	}, nil
}
