package nftables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

func sortedListing(text string) string {
	lines := ruleLines(text)
	for part := range strings.SplitSeq(text, "elements = {") {
		list, _, _ := strings.Cut(part, "}")
		elements := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
		for i := range elements {
			elements[i] = strings.Join(strings.Fields(elements[i]), " ")
		}
		slices.Sort(elements)
		lines = append(lines, strings.Join(elements, "\n"))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestNetlinkEqualsProgram applies random plans through netlink. The test then compares the tables with new tables that
// nft wrote for the same plan. The test compares both the elements and nft's listings.
func TestNetlinkEqualsProgram(t *testing.T) {
	sequences := 10
	if n, err := strconv.Atoi(os.Getenv("CONFORMANCE_SEQUENCES")); err == nil {
		sequences = n
	}
	newHost(t)
	p, drift := testProxier(t)
	state := func() string {
		maintain(t, p)
		return kernelElements(t, p) + readUntilStable(t, func() string { return sortedListing(nft(t, "list ruleset")) })
	}
	for seed := range sequences {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		var cur *plan.Plan
		for step := range 5 {
			next := randomPlan(rng, cur)
			if rng.IntN(4) == 0 {
				nft(t, fmt.Sprintf("add table ip other%d\ndelete table ip other%d", step, step))
			}
			apply(t, p, cur, next)
			cur = next
		}
		byNetlink, reports := state(), drift.count()
		forceRecreate(t, p, cur)
		if diff := firstDifference(state(), byNetlink); diff != "" {
			t.Fatalf("sequence %d: netlink and the program lead to different states: %s", seed, diff)
		}
		if reports > seed {
			t.Fatalf("drift reported for our own transactions: %q", drift.reasons)
		}
	}
}

// endpointChange returns two plans that differ in one endpoint of each of two ServicePorts, one of which has session
// affinity.
func endpointChange() (full, next *plan.Plan) {
	full = newPlan(testNode(), webServices()...)
	next = full
	for i, svc := range full.Services {
		if svc.Family != plan.IPv4 || svc.Name.Name != "web" && svc.Name.Name != "sticky" {
			continue
		}
		list := slices.Clone(svc.Pools[0])
		list[1] = endpoint(netip.AddrPortFrom(addr("10.244.9.9"), list[1].Addr.Port()).String())
		next = withEndpoints(next, i, list...)
	}
	return full, next
}

// To apply an endpoint change, Edgeway runs no program and opens no socket, because closing a netfilter socket takes as
// long as running nft.
func TestChangeNeedsNoProgram(t *testing.T) {
	newHost(t)
	p, drift := testProxier(t)
	full, next := endpointChange()
	apply(t, p, nil, full)
	before := figures(t, p, "edgeway_nftables_transactions_total")
	withoutFiles(t, func() {
		for range 500 {
			apply(t, p, full, next)
			apply(t, p, next, full)
		}
	})
	after := figures(t, p, "edgeway_nftables_transactions_total")
	if n, programs := after["path=netlink"]-before["path=netlink"], after["path=nft"]-before["path=nft"]; n < 1000 ||
		programs != 0 {
		t.Errorf("1,000 changes took %v transactions by netlink and %v by nft", n, programs)
	}
	partial := kernelState(t, p)
	forceRecreate(t, p, full)
	if diff := firstDifference(kernelState(t, p), partial); diff != "" {
		t.Errorf("after 1,000 changes: %s", diff)
	}
	if drift.count() > 1 {
		t.Errorf("drift: %q", drift.reasons)
	}
}

func withoutFiles(t *testing.T, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER); !errors.Is(err, unix.EMFILE) {
		_ = unix.Close(fd)
		t.Errorf("a socket can be opened (%v): the rest says nothing", err)
	}
	f()
}

// While other programs write to their own tables, the kernel applies all of Edgeway's changes, and Edgeway reports no
// drift.
func TestChangesBesideOthers(t *testing.T) {
	newHost(t)
	p, drift := testProxier(t)
	full, next := endpointChange()
	apply(t, p, nil, full)
	nft(t, "add table ip other")
	other, err := netlink.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	done, stop := make(chan error), make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n > 1000 {
					done <- nil
					return
				}
			default:
			}
			if err := addChain(other, fmt.Sprint("c", n)); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 500 {
		apply(t, p, full, next)
		apply(t, p, next, full)
	}
	apply(t, p, full, next)
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	time.Sleep(readTimeout)
	if drift.count() != 0 {
		t.Errorf("drift: %q", drift.reasons)
	}
	if stale := figures(t, p, "edgeway_nftables_transactions_stale_total")[""]; stale == 0 {
		t.Error("no batch came too late: the rest says little")
	}
	nft(t, "delete table ip other")
	partial := kernelState(t, p)
	apply(t, p, nil, next)
	if diff := firstDifference(kernelState(t, p), partial); diff != "" {
		t.Errorf("a change was lost: %s", diff)
	}
}

func addChain(c *netlink.Conn, name string) error {
	var b netlink.Batch
	b.Add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, unix.NFPROTO_IPV4, func(attrs []byte) []byte {
		return netlink.AppendAttr(netlink.AppendAttr(attrs, netlink.AttrTable, "other"), unix.NFTA_CHAIN_NAME, name)
	})
	for {
		generation, err := c.Generation()
		if err != nil {
			return err
		}
		if err = c.Commit(&b, generation); !errors.Is(err, netlink.ErrStale) {
			return err
		}
	}
}
