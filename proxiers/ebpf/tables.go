package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// perBatch is the number of map elements that one system call reads or writes.
const perBatch = 4096

type table[K comparable, V any] struct{ *ebpf.Map }

// each visits every element, but may miss or repeat an element that is written during the call. Only the daemon writes
// to the maps that implement the plan.
func (t table[K, V]) each(visit func(K, V)) error {
	keys, values := make([]K, perBatch), make([]V, perBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := t.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			visit(keys[i], values[i])
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("read the map: %w", err)
		}
	}
}

// elements holds map elements as parallel slices of keys and values.
type elements[K, V any] struct {
	keys   []K
	values []V
}

func (e *elements[K, V]) add(k K, v V) { e.keys, e.values = append(e.keys, k), append(e.values, v) }

// put writes elements, overwriting existing ones.
func (t table[K, V]) put(e elements[K, V]) error {
	for i := 0; i < len(e.keys); i += perBatch {
		end := min(i+perBatch, len(e.keys))
		if _, err := t.BatchUpdate(e.keys[i:end], e.values[i:end], nil); err != nil {
			return fmt.Errorf("write to the map: %w", err)
		}
	}
	return nil
}

// remove deletes elements one by one and ignores missing ones, because a batch deletion would stop at the first missing
// element.
func (t table[K, V]) remove(keys []K) error {
	for i := range keys {
		if err := t.Delete(&keys[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete from the map: %w", err)
		}
	}
	return nil
}

// tables holds the maps with contents that the plan determines.
type tables struct {
	frontends table[socketsFrontendKey, socketsFrontend]
	slots     table[socketsSlotKey, socketsEndpoint]
	members   table[socketsMemberKey, uint8]
	addresses table[socketsAddress, uint8]
	taken     table[uint32, []uint64]
}

func tablesOf(o *objects) tables {
	return tables{
		table[socketsFrontendKey, socketsFrontend]{o.Frontends},
		table[socketsSlotKey, socketsEndpoint]{o.Slots},
		table[socketsMemberKey, uint8]{o.Members},
		table[socketsAddress, uint8]{o.Addresses},
		table[uint32, []uint64]{o.Taken},
	}
}

// held holds the contents of the maps in planMaps.
type held struct {
	frontends map[socketsFrontendKey]socketsFrontend
	slots     map[socketsSlotKey]socketsEndpoint
	members   map[socketsMemberKey]uint8
	addresses map[socketsAddress]uint8
	// taken holds the keys of the map taken, which counts the connections that used the shortcut.
	taken []uint32
}

func newHeld() *held {
	return &held{
		map[socketsFrontendKey]socketsFrontend{},
		map[socketsSlotKey]socketsEndpoint{},
		map[socketsMemberKey]uint8{},
		map[socketsAddress]uint8{},
		nil,
	}
}

func (t *tables) read() (*held, error) {
	h := newHeld()
	return h, errors.Join(
		t.eachTaken(func(key uint32, _ uint64) { h.taken = append(h.taken, key) }),
		t.frontends.each(func(k socketsFrontendKey, v socketsFrontend) { h.frontends[k] = v }),
		t.slots.each(func(k socketsSlotKey, v socketsEndpoint) { h.slots[k] = v }),
		t.members.each(func(k socketsMemberKey, v uint8) { h.members[k] = v }),
		t.addresses.each(func(k socketsAddress, v uint8) { h.addresses[k] = v }),
	)
}

// eachTaken visits the numbers of connections that used the shortcut.
func (t *tables) eachTaken(visit func(key uint32, n uint64)) error {
	var key uint32
	var perCPU []uint64
	list := t.taken.Iterate()
	for list.Next(&key, &perCPU) {
		visit(key, total(perCPU))
	}
	return list.Err()
}
