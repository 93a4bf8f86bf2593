package floor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// commit must add all elements, even if they do not fit into one transaction. If the kernel rejects a transaction,
// commit must return an error, and the nft table must not change.
func TestCommit(t *testing.T) {
	netns := fmt.Sprintf("ewfloor%d", os.Getpid())
	if err := kit.IP(t.Context(), "netns add "+netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kit.IP(context.Background(), "netns del "+netns) })
	nft := func(args ...string) string {
		out, err := exec.Command("ip", append([]string{"netns", "exec", netns, "nft"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	nft(fmt.Sprintf(ruleset, cluster.ServiceCIDRs()[0], 3))
	var table *table
	if err := cluster.RunInNetns(netns, func() (err error) {
		table, err = openTable()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer table.close()

	var many []element
	for i := range maxElements {
		many = append(many, elements(i, 0, 1, 2)...)
	}
	before, now := elements(7, 0, 1, 2), elements(7, 0, 9, 2)
	for _, step := range []struct{ gone, come []element }{{nil, many}, {before[1:2], now[1:2]}, {nil, nil}} {
		if err := table.commit(step.gone, step.come); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.commit(elements(maxElements, 0), elements(7, 5)); err == nil {
		t.Error("a transaction that removes what is not there is taken")
	}
	got := nft("list", "map", "ip", "floor", "endpoints")
	if n := strings.Count(got, ". 8080"); n != len(many) {
		t.Errorf("%d elements, want %d", n, len(many))
	}
	for n, j := range []int{0, 9, 2} {
		want := fmt.Sprintf("%s . 0x%08x : %s . 8080", cluster.ClusterIP(7), n, cluster.EndpointAddr(7, j))
		if !strings.Contains(got, want) {
			t.Errorf("no %q in what nft lists", want)
		}
	}
}

func elements(service int, endpoints ...int) (all []element) {
	for n, j := range endpoints {
		all = append(all, newElement(cluster.ClusterIP(service), n, cluster.EndpointAddr(service, j).String()))
	}
	return all
}

// differences must omit the elements that both lists contain at the same index.
func TestDifferences(t *testing.T) {
	three := elements(7, 0, 1, 2)
	for name, c := range map[string]struct{ before, now, gone, come []element }{
		"new":     {nil, three, nil, three},
		"gone":    {three, nil, three, nil},
		"changed": {three, elements(7, 0, 9, 2), three[1:2], elements(7, 0, 9)[1:]},
		"fewer":   {three, three[:1], three[1:], nil},
		"same":    {three, slices.Clone(three), nil, nil},
	} {
		if gone, come := differences(c.before, c.now); !slices.Equal(gone, c.gone) || !slices.Equal(come, c.come) {
			t.Errorf("%s: %x are gone and %x come", name, gone, come)
		}
	}
}
