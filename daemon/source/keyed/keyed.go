// Package keyed has sets of things that know their own keys, for sets that a daemon keeps for good: of each thing they hold a
// pointer alone, where a map holds the key beside it, a third to a sixth of the memory for objects with a namespace and a name.
package keyed

import (
	"hash/maphash"
	"iter"
)

// Thing is a pointer, or an interface that holds one.
type Thing[K comparable] interface {
	comparable
	Key() K
}

// Set has at most one thing of each key. The zero value is empty. It is for one goroutine at a time.
type Set[K comparable, V Thing[K]] struct {
	// slots are a power of two, and a quarter of them free, which is the zero value. A thing is in the slot that its
	// hash says, or in a later one before the next free one.
	slots []V
	count int
	seed  maphash.Seed
}

// Len is the number of things.
func (s *Set[K, V]) Len() int { return s.count }

// Get gives the thing of this key.
func (s *Set[K, V]) Get(key K) (v V, ok bool) {
	if s.count == 0 {
		return v, false
	}
	v = s.slots[s.find(key)]
	var free V
	return v, v != free
}

// Put adds a thing in the place of the one that has its key.
func (s *Set[K, V]) Put(v V) {
	if 4*(s.count+1) > 3*len(s.slots) {
		s.grow()
	}
	i := s.find(v.Key())
	var free V
	if s.slots[i] == free {
		s.count++
	}
	s.slots[i] = v
}

// Delete removes the thing of this key if there is one.
func (s *Set[K, V]) Delete(key K) {
	if s.count == 0 {
		return
	}
	var free V
	hole := s.find(key)
	if s.slots[hole] == free {
		return
	}
	s.slots[hole] = free
	s.count--
	// What could not have its own slot must not be behind a free one.
	mask := len(s.slots) - 1
	for i := (hole + 1) & mask; s.slots[i] != free; i = (i + 1) & mask {
		home := s.home(s.slots[i].Key())
		if (i-home)&mask >= (i-hole)&mask {
			s.slots[hole], s.slots[i] = s.slots[i], free
			hole = i
		}
	}
}

// All gives the things in no particular order. The set must not change meanwhile.
func (s *Set[K, V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		var free V
		for _, v := range s.slots {
			if v != free && !yield(v) {
				return
			}
		}
	}
}

// find gives the slot of the thing of this key, or the free one where it would be. There are slots.
func (s *Set[K, V]) find(key K) int {
	var free V
	i := s.home(key)
	for s.slots[i] != free && s.slots[i].Key() != key {
		i = (i + 1) & (len(s.slots) - 1)
	}
	return i
}

func (s *Set[K, V]) home(key K) int { return int(maphash.Comparable(s.seed, key)) & (len(s.slots) - 1) }

func (s *Set[K, V]) grow() {
	old := *s
	if len(old.slots) == 0 {
		s.seed = maphash.MakeSeed()
	}
	s.slots = make([]V, max(8, 2*len(old.slots)))
	for v := range old.All() {
		s.slots[s.find(v.Key())] = v
	}
}
