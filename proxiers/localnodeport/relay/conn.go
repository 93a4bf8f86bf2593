package relay

import (
	"container/heap"
	"slices"

	"golang.org/x/sys/unix"
)

// The two sides of a connection. A side is also the number of the flow that it is the source of.
const (
	client = iota
	endpoint
)

// conn is one relayed connection: a hundred bytes, in a slab that is used again. It belongs to one loop.
type conn struct {
	port  *Port
	dial  *dial // until the endpoint has answered
	flows [2]flow
	sides [2]side

	index      uint32 // its place in the table; 0 is no connection
	generation uint32 // tells events of an earlier connection in the same place
	prev, next uint32 // in a queue
	since      uint32 // when it came into the queue, by the loop's clock
	queue      queue
	open       bool
}

// side is one socket of a connection.
type side struct {
	fd    int32
	flags sideFlags
}

type sideFlags uint8

const (
	readable sideFlags = 1 << iota // a read may give something
	hungUp                         // the peer has ended its stream: read on until its end is seen
	blocked                        // a write did not take everything: wait for the next EPOLLOUT
	watchOut                       // registered for EPOLLOUT
	written                        // something was written
	noDelay                        // TCP_NODELAY is set
	urgent                         // had urgent data, at which reads stop short and splice(2) gets stuck
)

// flow is what goes from one side to the other.
type flow struct {
	held *held // bytes that were read and not yet written; nil: none
	bulk bool  // goes through a pipe
	done bool  // the end was read, everything before it written, and the end passed on
	end  bool  // the end was read
}

const slabSize = 128

// slab is a part of a table.
type slab struct {
	conns [slabSize]conn
	open  int
}

// table holds a loop's connections. Places are numbered from 1, and the lowest free one is used first, so that the
// slabs of a peak become empty and can go.
type table struct {
	slabs []*slab
	free  places
	// started counts connections: it gives their generations.
	started uint32

	queues [queues]ends
}

// places is a heap of free places.
type places []uint32

func (p places) Len() int           { return len(p) }
func (p places) Less(i, j int) bool { return p[i] < p[j] }
func (p places) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *places) Push(x any)        { *p = append(*p, x.(uint32)) }
func (p *places) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}

func (t *table) at(index uint32) *conn { return &t.slabs[index/slabSize].conns[index%slabSize] }

// find gives the connection of an event; nil: it has ended. (Between the fork and the exec of a child
// the child holds our sockets too, so that closed ones still report events.)
func (t *table) find(index, generation uint32) *conn {
	if int(index/slabSize) >= len(t.slabs) {
		return nil
	}
	if c := t.at(index); c.open && c.generation == generation {
		return c
	}
	return nil
}

func (t *table) take() *conn {
	if len(t.free) == 0 {
		base := uint32(len(t.slabs) * slabSize)
		t.slabs = append(t.slabs, new(slab))
		for i := range uint32(slabSize) { // in order: a heap already
			if index := base + i; index != 0 {
				t.free = append(t.free, index)
			}
		}
	}
	index := heap.Pop(&t.free).(uint32)
	t.started++
	t.slabs[index/slabSize].open++
	c := t.at(index)
	*c = conn{index: index, generation: t.started, open: true}
	return c
}

func (t *table) release(c *conn) {
	c.open, c.port, c.dial = false, nil, nil
	heap.Push(&t.free, c.index)
	t.slabs[c.index/slabSize].open--
	if n := len(t.slabs); n > 2 && t.slabs[n-1].open == 0 && t.slabs[n-2].open == 0 {
		t.shrink()
	}
}

// shrink drops the empty slabs at the end but for one.
func (t *table) shrink() {
	n := len(t.slabs)
	for n > 1 && t.slabs[n-1].open == 0 {
		n--
	}
	t.slabs = slices.Clone(t.slabs[:n+1])
	t.free = slices.Clone(slices.DeleteFunc(t.free, func(index uint32) bool { return int(index/slabSize) > n }))
	heap.Init(&t.free)
}

// queue is where connections wait for a time to pass, the oldest first.
type queue uint8

const (
	nowhere queue = iota
	dialing       // the endpoint has not answered yet
	young         // too new for keep-alive
	queues
)

type ends struct{ first, last uint32 }

func (t *table) push(q queue, c *conn, now uint32) {
	ends := &t.queues[q]
	c.queue, c.since, c.prev, c.next = q, now, ends.last, 0
	if ends.last != 0 {
		t.at(ends.last).next = c.index
	} else {
		ends.first = c.index
	}
	ends.last = c.index
}

// leave takes a connection out of the queue that it is in.
func (t *table) leave(c *conn) {
	if c.queue == nowhere {
		return
	}
	ends := &t.queues[c.queue]
	if c.prev != 0 {
		t.at(c.prev).next = c.next
	} else {
		ends.first = c.next
	}
	if c.next != 0 {
		t.at(c.next).prev = c.prev
	} else {
		ends.last = c.prev
	}
	c.queue, c.prev, c.next = nowhere, 0, 0
}

// oldest gives the first of a queue; nil: it is empty.
func (t *table) oldest(q queue) *conn {
	if first := t.queues[q].first; first != 0 {
		return t.at(first)
	}
	return nil
}

// Events carry the place of a connection and its side, or the number of a port.
const (
	tagClient = iota
	tagEndpoint
	tagPort
	tagWake
	tagBits = 2
)

func event(events uint32, tag int, index, generation uint32) unix.EpollEvent {
	return unix.EpollEvent{Events: events, Fd: int32(index<<tagBits | uint32(tag)), Pad: int32(generation)}
}

func parseEvent(e *unix.EpollEvent) (tag int, index, generation uint32) {
	return int(uint32(e.Fd) & (1<<tagBits - 1)), uint32(e.Fd) >> tagBits, uint32(e.Pad)
}
