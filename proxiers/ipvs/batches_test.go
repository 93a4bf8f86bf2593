package ipvs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// Partial syncs of any size result in the same nftables table as a first sync. The test uses the ipvs backend's schema,
// and the schema of the nftables and ebpf backends, which has different sets.
func TestBatchesOfAnySize(t *testing.T) {
	where := &allocator{}
	schemas := map[string]func(*plan.Plan) nfttable.Schema{
		"nftables": func(*plan.Plan) nfttable.Schema { return nftables.EndpointSchema(proxiers.NFTablesTable, true) },
		"ipvs": func(p *plan.Plan) nfttable.Schema {
			*where = *allocate(p)
			return schema(where, true)
		},
	}
	for name, of := range schemas {
		for chunk, steps := range map[int]int{30: 40, 10_000: 4} {
			t.Run(fmt.Sprint(name, "/", chunk), func(t *testing.T) { testBatches(t, chunk, steps, of) })
		}
	}
}

// testBatches applies a sequence of random plans. Each change contains about as many elements as one or two chunks.
// Before each partial sync, testBatches calls the function schema with the next plan.
func testBatches(t *testing.T, chunk, steps int, schema func(*plan.Plan) nfttable.Schema) {
	runtime.LockOSThread() // never unlocked, so the network namespace disappears with the thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (the test needs root): %v", err)
	}
	w := &walk{Rand: rand.New(rand.NewPCG(uint64(chunk), 2)), chunk: chunk, node: plantest.Node()}
	prev := w.next()
	s := schema(prev)
	s.ChunkSize = chunk
	table := open(t, s)
	apply(t, table, nil, prev)
	for i := range steps {
		next := w.next()
		schema(next)
		apply(t, table, prev, next)
		fresh := s
		fresh.Table = s.Table + "-fresh"
		scratch := open(t, fresh)
		apply(t, scratch, nil, next)
		if diff := difference(state(t, s.Table), state(t, fresh.Table)); diff != "" {
			t.Fatalf("step %d, %s: the state differs from one from scratch: %s", i, w.what, diff)
		}
		if err := nfttable.Cleanup(t.Context(), fresh.Table); err != nil {
			t.Fatal(err)
		}
		prev = next
	}
}

func open(t *testing.T, s nfttable.Schema) *nfttable.Table {
	table, err := nfttable.New(s, proxiers.Env{
		Logger: slog.New(slog.DiscardHandler), Families: []plan.Family{plan.IPv4},
		MasqueradeBit: 14, Drift: func(string) {}, Progress: func(int, int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

func apply(t *testing.T, table *nfttable.Table, prev, next *plan.Plan) {
	t.Helper()
	if err := table.Apply(t.Context(), proxiers.NewChange(prev, next)); err != nil {
		t.Fatal(err)
	}
}

type walk struct {
	*rand.Rand
	chunk    int
	node     *plan.Node
	services []*service
	last     int
	what     string
}

type service struct {
	name  string
	addrs []int
	ports []int
	// nameVersion is part of the port names. Each rename increments nameVersion.
	nameVersion int
}

// size returns the approximate number of elements for a Service.
func (s *service) size() int { return len(s.addrs) * len(s.ports) }

// next removes, renames, moves and adds Services whose elements together fill about one or two chunks.
func (w *walk) next() *plan.Plan {
	target := w.chunk*(1+w.IntN(2)) + w.IntN(max(3, w.chunk/50)) - max(1, w.chunk/100)
	w.what = fmt.Sprintf("about %d elements:", target)
	for left := target; left > 0; {
		var kind string
		var n int
		switch k := w.IntN(4); {
		case k == 0 && len(w.services) > 0:
			i := w.IntN(len(w.services))
			kind, n = "remove", w.services[i].size()
			w.services = slices.Delete(w.services, i, i+1)
		case k == 1 && len(w.services) > 0:
			s := w.services[w.IntN(len(w.services))]
			kind, n = "rename", s.size()
			s.nameVersion++
			s.ports = s.ports[:1+w.IntN(len(s.ports))]
		case k == 2 && len(w.services) > 1:
			a, b := w.IntN(len(w.services)), w.IntN(len(w.services))
			kind, n = "move", w.services[a].size()+w.services[b].size()
			w.services[a].addrs, w.services[b].addrs = w.services[b].addrs, w.services[a].addrs
		default:
			s := w.add(min(left, 1+w.IntN(target)))
			kind, n = "add", s.size()
		}
		w.what += " " + kind
		left -= max(1, n)
	}
	return w.plan()
}

func (w *walk) add(elements int) *service {
	w.last++
	s := &service{name: fmt.Sprintf("s%05d", w.IntN(100_000))}
	ports := 1 + w.IntN(min(100, elements))
	for i := range ports {
		s.ports = append(s.ports, 80+i)
	}
	for i := range max(1, elements/ports) {
		s.addrs = append(s.addrs, w.last<<12+i)
	}
	w.services = append(w.services, s)
	return s
}

func (w *walk) plan() *plan.Plan {
	var list []*plan.ServicePort
	names := map[string]bool{}
	for _, s := range w.services {
		if names[s.name] {
			s.name += "x"
		}
		names[s.name] = true
		for i, port := range s.ports {
			svc := plantest.Service(s.name, nil, plantest.Endpoint(fmt.Sprintf("10.244.1.%d:8080", 1+i%3)))
			svc.Name.Port = fmt.Sprintf("p%d-%d", s.nameVersion, i)
			for k, a := range s.addrs {
				f := plantest.ClusterIP("10.0.0.0", uint16(port))
				f.Addr = netip.AddrFrom4([4]byte{100, byte(a >> 16), byte(a >> 8), byte(a)})
				if k > 0 {
					f.Kind = plan.ExternalIP
				}
				svc.Frontends = append(svc.Frontends, f)
			}
			slices.SortFunc(svc.Frontends, func(a, b plan.Frontend) int { return a.Compare(&b) })
			list = append(list, svc)
		}
	}
	return plantest.Plan(w.node, list...)
}

func state(t *testing.T, table string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "nft", "--json", "list", "table", "ip", table)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("nft: %v", err)
	}
	var listing struct{ Nftables []map[string]map[string]any }
	if err := json.Unmarshal(out, &listing); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, item := range listing.Nftables {
		for kind, object := range item {
			name, _ := object["name"].(string)
			switch kind {
			case "chain":
				found["chain "+name] = nil
			case "rule":
				key := fmt.Sprint("chain ", object["chain"])
				found[key] = append(found[key], text(object["expr"]))
			case "set", "map":
				key := kind + " " + name
				found[key] = nil
				elements, _ := object["elem"].([]any)
				for _, e := range elements {
					found[key] = append(found[key], text(e))
				}
				slices.Sort(found[key])
			}
		}
	}
	return found
}

func text(v any) string {
	raw, _ := json.Marshal(v) // the error is nil, because v is decoded JSON
	return string(raw)
}

// difference describes the first difference between two states, ignoring unused chains and maps, which Maintain deletes
// later.
func difference(got, want map[string][]string) string {
	for key, list := range want {
		if have, ok := got[key]; !ok || !slices.Equal(have, list) {
			missing := slices.DeleteFunc(slices.Clone(list), func(e string) bool { return slices.Contains(have, e) })
			more := slices.DeleteFunc(slices.Clone(have), func(e string) bool { return slices.Contains(list, e) })
			return fmt.Sprintf("%s has %d instead of %d; it lacks %.200s; and has %.200s", key, len(have), len(list),
				strings.Join(missing, " "), strings.Join(more, " "))
		}
	}
	return ""
}
