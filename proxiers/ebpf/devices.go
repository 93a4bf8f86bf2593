package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// filterName distinguishes Edgeway's filter from other filters.
	filterName = "edgeway"
	// filterPriority places the filter after other filters, because a packet that another filter drops must not create
	// a connection-tracking entry.
	filterPriority = 50000
)

// deviceLink attaches a program to a device with a BPF link (Linux 6.6 or newer). The link is not pinned, so nftables
// forwards the device's connections while the daemon is not running.
type deviceLink struct {
	link.Link
	device uint32
}

func attachLink(index int, p *ebpf.Program) (attachment, error) {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, explain(err)
	}
	return &deviceLink{l, uint32(index)}, nil
}

func (l *deviceLink) isAttached(program ebpf.ProgramID) bool {
	info, err := l.Info()
	return err == nil && info.TCX() != nil && info.TCX().Ifindex == l.device && info.Program == program
}

func (l *deviceLink) detach() error { return l.Close() }

// deviceFilter attaches a program to a device as a filter on the clsact queueing discipline. detach keeps the queueing
// discipline, because other programs may use it.
type deviceFilter struct{ device int }

func attachFilter(index int, p *ebpf.Program) (attachment, error) {
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}); err != nil &&
		!errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("queueing discipline clsact (module sch_ingress): %w", err)
	}
	if err := netlink.FilterReplace(ourFilter(index, p.FD())); err != nil {
		return nil, fmt.Errorf("filter (module cls_bpf): %w", err)
	}
	return &deviceFilter{index}, nil
}

func ourFilter(index, fd int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1,
			Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: filterName, DirectAction: true,
	}
}

func (f *deviceFilter) isAttached(program ebpf.ProgramID) bool {
	have, err := filtersAt(f.device)
	return err == nil && len(have) == 1 && have[0].Id == int(program)
}

func (f *deviceFilter) detach() error { return removeFilters(f.device) }

func filtersAt(index int) (ours []*netlink.BpfFilter, err error) {
	list, err := netlink.FilterList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}},
		netlink.HANDLE_MIN_INGRESS)
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filterName {
			ours = append(ours, b)
		}
	}
	return ours, err
}

func removeFilters(index int) error {
	ours, err := filtersAt(index)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.EOPNOTSUPP) {
		return nil // the device or its queueing discipline does not exist, or the kernel lacks CONFIG_NET_CLS
	}
	for _, f := range ours {
		err = errors.Join(err, netlink.FilterDel(f))
	}
	return err
}

// removeAllFilters removes the filters that a killed daemon left on network devices.
func removeAllFilters() error {
	devices, err := netlink.LinkList()
	for _, d := range devices {
		err = errors.Join(err, removeFilters(d.Attrs().Index))
	}
	return err
}
