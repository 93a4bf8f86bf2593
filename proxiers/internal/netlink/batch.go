package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	headSize = netlinkHeader + nfgenHeader
	// beginSize is the size in bytes of a batch's first message, which contains the generation number.
	beginSize = headSize + 8
	// MaxAttr is the maximum length of an attribute in bytes. An attribute's length field has 16 bits. The kernel
	// (6.18) does not reject a longer attribute, but reads only part of it.
	MaxAttr = 1<<16 - 4
)

// Batch is a transaction: a list of messages that the kernel applies to nftables atomically. The zero Batch is empty.
type Batch struct {
	buf    []byte
	starts []int
}

// Reset empties the batch but keeps its memory.
func (b *Batch) Reset() { b.buf, b.starts = b.buf[:0], b.starts[:0] }

// Messages returns the number of messages.
func (b *Batch) Messages() int { return len(b.starts) }

// Size returns the number of bytes that Conn.Commit sends for the batch.
func (b *Batch) Size() int { return len(b.buf) + headSize }

// Add adds a message. kind is an NFT_MSG constant, and family is an NFPROTO constant. attrs appends the attributes.
func (b *Batch) Add(kind, flags uint16, family uint8, attrs func([]byte) []byte) {
	if len(b.buf) == 0 {
		b.buf = appendHead(b.buf, unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, 0, unix.AF_UNSPEC)
		binary.BigEndian.PutUint16(b.buf[headSize-2:], unix.NFNL_SUBSYS_NFTABLES)
		b.buf = AppendUint32(b.buf, unix.NFNL_BATCH_GENID, 0)
		endMessage(b.buf, 0)
	}
	start := len(b.buf)
	b.starts = append(b.starts, start)
	b.buf = attrs(appendHead(b.buf, unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_REQUEST|flags, uint32(len(b.starts)),
		family))
	endMessage(b.buf, start)
}

// bytes returns the encoded batch with the given generation number. Only the last message requests an acknowledgement,
// which proves that the kernel has read all messages. The kernel reports rejected messages even if they request no
// acknowledgement. (Only Linux 6.10 and newer acknowledge the end of a batch.)
func (b *Batch) bytes(generation uint32) []byte {
	binary.BigEndian.PutUint32(b.buf[beginSize-4:], generation)
	last := b.buf[b.starts[len(b.starts)-1]:]
	binary.NativeEndian.PutUint16(last[6:], binary.NativeEndian.Uint16(last[6:])|unix.NLM_F_ACK)
	end := len(b.buf)
	all := appendHead(b.buf, unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, uint32(len(b.starts)+1), unix.AF_UNSPEC)
	binary.BigEndian.PutUint16(all[len(all)-2:], unix.NFNL_SUBSYS_NFTABLES)
	endMessage(all, end)
	b.buf = all[:end]
	return all
}

// appendHead appends a message's headers without the length, which endMessage sets.
func appendHead(b []byte, kind, flags uint16, seq uint32, family uint8) []byte {
	b = binary.NativeEndian.AppendUint16(append(b, 0, 0, 0, 0), kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(b, 0, 0, 0, 0, family, unix.NFNETLINK_V0, 0, 0)
}

func endMessage(b []byte, start int) {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
}
