package conformance

import (
	"math/rand/v2"
	"slices"
)

// sequence encodes each random change in three bytes, so that a fuzzer can shorten and recombine sequences. The first
// byte selects the kind of change, and specifies whether the backend applies the change immediately or together with
// the next change. The other two bytes determine the details of the change.
type sequence []byte

const changeBytes = 3

// randomSequence returns the n-th random sequence of at most the given number of changes.
func randomSequence(n, most int) sequence {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	seq := make(sequence, changeBytes*(1+r.IntN(most)))
	for i := range seq {
		seq[i] = byte(r.Uint32())
	}
	return seq
}

// deck deals the kinds of changes in an order that lets a few sequences cover all kinds. Service changes occur twice as
// often as node changes, because a backend may respond to a node change with a full sync, which hides earlier changes.
type deck struct {
	*rand.Rand
	cards []byte
}

func newDeck() *deck { return &deck{Rand: rand.New(rand.NewPCG(0, 2))} }

func (d *deck) deal(seq sequence) sequence {
	for i := 0; i < len(seq); i += changeBytes {
		if len(d.cards) == 0 {
			d.shuffle()
		}
		seq[i] = d.cards[0]
		d.cards = d.cards[1:]
	}
	return seq
}

func (d *deck) shuffle() {
	bytes := map[string][]byte{} // the bytes that select each kind
	for b := range 1 << 8 {
		name := kindOf(byte(b)).name
		bytes[name] = append(bytes[name], byte(b))
	}
	for _, k := range slices.Concat(serviceChanges, stateOnlyChanges, serviceChanges, stateOnlyChanges, nodeChanges,
		stateOnlyNodeChanges) {
		d.cards = append(d.cards, bytes[k.name][d.IntN(len(bytes[k.name]))])
	}
	d.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
}

// newSequenceChanger returns a changer for sequences. Many of the changer's Services have addresses with the same low
// bits, so a backend that groups Services by these bits puts many Services in one group.
func newSequenceChanger() *changer {
	c := newChanger(0)
	c.small = true
	for n := 48; n <= 240; n += 16 {
		c.numbers = append(c.numbers, n)
	}
	return c
}

// performSequence performs the changes in seq, calls apply after each change that is not combined with the next change,
// and stops at the first error.
func (c *changer) performSequence(seq sequence, apply func() error) error {
	for len(seq) >= changeBytes {
		b := seq[:changeBytes]
		seq = seq[changeBytes:]
		c.Rand = rand.New(rand.NewPCG(uint64(b[1]), uint64(b[2])))
		c.change(kindOf(b[0]))
		if together := b[0]>>7 == 1; !together || len(seq) < changeBytes {
			if err := apply(); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindOf returns the kind of change that the byte b selects. One in sixteen byte values selects a node change.
func kindOf(b byte) kind {
	kinds := slices.Concat(serviceChanges, stateOnlyChanges)
	if b>>3&15 == 0 {
		kinds = slices.Concat(nodeChanges, stateOnlyNodeChanges)
	}
	return kinds[int(b)%len(kinds)]
}
