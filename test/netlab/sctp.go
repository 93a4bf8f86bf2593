package netlab

import (
	"encoding/binary"
	"hash/crc32"
)

// The lab uses two SCTP chunks (RFC 9260): INIT from the client, and INIT-ACK from the server. The state cookie in the
// INIT-ACK contains the server's greeting.
const (
	sctpInit    = 1
	sctpInitAck = 2

	sctpHeader    = 12 // ports, verification tag, checksum
	sctpInitChunk = 20 // chunk header, initiate tag, window, streams out and in, initial TSN
	sctpCookie    = 7  // parameter type
)

// sctpPacket is a packet with one INIT or INIT-ACK chunk.
type sctpPacket struct {
	from, to uint16
	// tag is the verification tag: 0 in an INIT, and the peer's initiate tag in an INIT-ACK.
	tag     uint32
	chunk   byte
	initTag uint32
	cookie  []byte // set only in an INIT-ACK
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marshal encodes the packet with its CRC32c. NAT must update the CRC32c, and connection tracking verifies it.
func (p *sctpPacket) marshal() []byte {
	chunkLen := sctpInitChunk
	if p.chunk == sctpInitAck {
		chunkLen += 4 + len(p.cookie)
	}
	b := make([]byte, sctpHeader+(chunkLen+3)&^3)
	binary.BigEndian.PutUint16(b, p.from)
	binary.BigEndian.PutUint16(b[2:], p.to)
	binary.BigEndian.PutUint32(b[4:], p.tag)
	c := b[sctpHeader:]
	c[0] = p.chunk
	binary.BigEndian.PutUint16(c[2:], uint16(chunkLen))
	binary.BigEndian.PutUint32(c[4:], p.initTag)
	binary.BigEndian.PutUint32(c[8:], 65536) // receive window
	binary.BigEndian.PutUint16(c[12:], 1)    // outbound streams
	binary.BigEndian.PutUint16(c[14:], 1)    // inbound streams
	binary.BigEndian.PutUint32(c[16:], p.initTag)
	if p.chunk == sctpInitAck {
		binary.BigEndian.PutUint16(c[sctpInitChunk:], sctpCookie)
		binary.BigEndian.PutUint16(c[sctpInitChunk+2:], uint16(4+len(p.cookie)))
		copy(c[sctpInitChunk+4:], p.cookie)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// parseSCTP parses a packet that has a valid checksum and starts with an INIT or INIT-ACK chunk. For any other packet,
// ok is false.
func parseSCTP(b []byte) (p sctpPacket, ok bool) {
	if len(b) < sctpHeader+sctpInitChunk || !sctpChecksumOK(b) {
		return p, false
	}
	c := b[sctpHeader:]
	p = sctpPacket{
		from: binary.BigEndian.Uint16(b), to: binary.BigEndian.Uint16(b[2:]), tag: binary.BigEndian.Uint32(b[4:]),
		chunk: c[0], initTag: binary.BigEndian.Uint32(c[4:]),
	}
	switch p.chunk {
	case sctpInit:
		return p, true
	case sctpInitAck:
		if len(c) < sctpInitChunk+4 || binary.BigEndian.Uint16(c[sctpInitChunk:]) != sctpCookie {
			return p, false
		}
		end := sctpInitChunk + int(binary.BigEndian.Uint16(c[sctpInitChunk+2:]))
		if end < sctpInitChunk+4 || end > len(c) {
			return p, false
		}
		p.cookie = c[sctpInitChunk+4 : end]
		return p, true
	}
	return p, false
}

func sctpChecksumOK(b []byte) bool {
	zeroed := append([]byte(nil), b...)
	clear(zeroed[8:12])
	return binary.LittleEndian.Uint32(b[8:]) == crc32.Checksum(zeroed, castagnoli)
}
