package conformance

import (
	"math/rand/v2"
	"slices"
)

// sequence is a sequence of random changes as bytes, three for each, so that a fuzzer can shorten and
// recombine it. The first chooses the kind of change, and whether it is applied at once or together with the
// next; the others choose the rest of it.
type sequence []byte

const changeBytes = 3

// randomSequence gives the n-th sequence of up to most changes.
func randomSequence(n, most int) sequence {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	seq := make(sequence, changeBytes*(1+r.IntN(most)))
	for i := range seq {
		seq[i] = byte(r.Uint32())
	}
	return seq
}

// newSequenceChanger gives a changer for sequences. Its Services share the low bits of addresses more often than
// chance would have it: a backend that sorts by them has many in one place.
func newSequenceChanger() *changer {
	c := newChanger(0)
	c.small = true
	for n := 48; n <= 240; n += 16 {
		c.numbers = append(c.numbers, n)
	}
	return c
}

// walk makes the changes of seq and calls apply where they are to be applied. It ends with apply's first error.
func (c *changer) walk(seq sequence, apply func() error) error {
	for len(seq) >= changeBytes {
		b := seq[:changeBytes]
		seq = seq[changeBytes:]
		// One change in sixteen is of the node: it may be answered with a full sync, which hides what came before.
		kinds := slices.Concat(serviceChanges, stateOnlyChanges)
		if b[0]>>3&15 == 0 {
			kinds = slices.Concat(nodeChanges, stateOnlyNodeChanges)
		}
		c.Rand = rand.New(rand.NewPCG(uint64(b[1]), uint64(b[2])))
		c.change(kinds[int(b[0])%len(kinds)])
		if together := b[0]>>7 == 1; !together || len(seq) < changeBytes {
			if err := apply(); err != nil {
				return err
			}
		}
	}
	return nil
}
