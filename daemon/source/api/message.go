package api

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// message reads the fields of a message of protobuf. What nobody asks for is passed over.
type message struct {
	rest   []byte
	number protowire.Number // of the present field
	kind   protowire.Type
	value  uint64 // of protowire.VarintType
	bytes  []byte // of protowire.BytesType
	err    error
	// entryRead is the last of a map: one in each object, not one for each label.
	entryRead entry
}

// part is something that is read of a message.
type part interface {
	// field takes the present field of the message, if it is one that is read.
	field(m *message)
}

func decode(data []byte, into part) error {
	m := message{kind: protowire.BytesType, bytes: data}
	m.into(into)
	return m.err
}

// next goes to the next field. It is false at the end, and after an error.
func (m *message) next() bool {
	if m.err != nil || len(m.rest) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(m.rest)
	if n < 0 {
		return m.fail(n)
	}
	m.number, m.kind, m.rest = number, kind, m.rest[n:]
	switch kind {
	case protowire.VarintType:
		m.value, n = protowire.ConsumeVarint(m.rest)
	case protowire.BytesType:
		m.bytes, n = protowire.ConsumeBytes(m.rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, m.rest)
	}
	if n < 0 {
		return m.fail(n)
	}
	m.rest = m.rest[n:]
	return true
}

func (m *message) fail(n int) bool {
	m.err = protowire.ParseError(n)
	return false
}

var errKind = errors.New("a field of protobuf is of another type than it should be")

// raw gives the content of a field of variable length.
func (m *message) raw() []byte {
	if m.kind != protowire.BytesType {
		m.err = errKind
		return nil
	}
	return m.bytes
}

func (m *message) text() string { return string(m.raw()) }

func (m *message) number64() uint64 {
	if m.kind != protowire.VarintType {
		m.err = errKind
	}
	return m.value
}

func (m *message) int32() int32 { return int32(m.number64()) }

func (m *message) flag() bool { return m.number64() != 0 }

// into reads a message in the message.
func (m *message) into(p part) {
	outer := m.rest
	m.rest = m.raw()
	for m.next() {
		p.field(m)
	}
	m.rest = outer
}

// grow adds an element to a list and gives it to be read.
func grow[T any](list *[]T) *T {
	*list = append(*list, *new(T))
	return &(*list)[len(*list)-1]
}

// made gives what a pointer leads to, and makes it if there is nothing.
func made[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}
