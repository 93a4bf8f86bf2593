package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// batchSize is the maximum number of map elements that one system call reads or writes.
const batchSize = 4096

type typedMap[K comparable, V any] struct{ *ebpf.Map }

// forEach visits every element of the map. If another goroutine writes to the map during the call, forEach may miss or
// repeat elements. Only the daemon writes to the maps that implement the plan.
func (t typedMap[K, V]) forEach(visit func(K, V)) error {
	keys, values := make([]K, batchSize), make([]V, batchSize)
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

// put writes elements and overwrites existing elements.
func (t typedMap[K, V]) put(e elements[K, V]) error {
	for i := 0; i < len(e.keys); i += batchSize {
		end := min(i+batchSize, len(e.keys))
		if _, err := t.BatchUpdate(e.keys[i:end], e.values[i:end], nil); err != nil {
			return fmt.Errorf("write to the map: %w", err)
		}
	}
	return nil
}

// remove deletes elements one by one and ignores missing elements. A batch deletion would stop at the first missing
// element.
func (t typedMap[K, V]) remove(keys []K) error {
	for i := range keys {
		if err := t.Delete(&keys[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete from the map: %w", err)
		}
	}
	return nil
}

// planMaps holds the maps whose contents depend on the plan.
type planMaps struct {
	frontends typedMap[socketsFrontendKey, socketsFrontend]
	slots     typedMap[socketsSlotKey, socketsEndpoint]
	members   typedMap[socketsMemberKey, uint8]
	addresses typedMap[socketsAddress, uint8]
	taken     typedMap[uint32, []uint64]
}

func planMapsOf(o *objects) planMaps {
	return planMaps{
		typedMap[socketsFrontendKey, socketsFrontend]{o.Frontends},
		typedMap[socketsSlotKey, socketsEndpoint]{o.Slots},
		typedMap[socketsMemberKey, uint8]{o.Members},
		typedMap[socketsAddress, uint8]{o.Addresses},
		typedMap[uint32, []uint64]{o.Taken},
	}
}

// mapContents holds the contents of the maps in planMaps.
type mapContents struct {
	frontends map[socketsFrontendKey]socketsFrontend
	slots     map[socketsSlotKey]socketsEndpoint
	members   map[socketsMemberKey]uint8
	addresses map[socketsAddress]uint8
	// taken holds the keys in the BPF map "taken", which counts the connections that used the shortcut.
	taken []uint32
}

func newMapContents() *mapContents {
	return &mapContents{
		map[socketsFrontendKey]socketsFrontend{},
		map[socketsSlotKey]socketsEndpoint{},
		map[socketsMemberKey]uint8{},
		map[socketsAddress]uint8{},
		nil,
	}
}

func (t *planMaps) read() (*mapContents, error) {
	h := newMapContents()
	return h, errors.Join(
		t.eachTaken(func(key uint32, _ uint64) { h.taken = append(h.taken, key) }),
		t.frontends.forEach(func(k socketsFrontendKey, v socketsFrontend) { h.frontends[k] = v }),
		t.slots.forEach(func(k socketsSlotKey, v socketsEndpoint) { h.slots[k] = v }),
		t.members.forEach(func(k socketsMemberKey, v uint8) { h.members[k] = v }),
		t.addresses.forEach(func(k socketsAddress, v uint8) { h.addresses[k] = v }),
	)
}

// eachTaken calls visit with the key and the connection count of each element in the map "taken".
func (t *planMaps) eachTaken(visit func(key uint32, n uint64)) error {
	var key uint32
	var perCPU []uint64
	list := t.taken.Iterate()
	for list.Next(&key, &perCPU) {
		visit(key, total(perCPU))
	}
	return list.Err()
}
