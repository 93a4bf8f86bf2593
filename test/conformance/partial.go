package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

const (
	sequencesVariable = "CONFORMANCE_SEQUENCES"
	sequencesUsually  = 200
	// coverageSequences is the number of sequences that together must cover every kind of change.
	coverageSequences = 15
	longestSequence   = 8
)

// testPartialSyncs applies random sequences of changes in partial syncs. After each sequence, the kernel's state must
// be the same as after a full sync on a fresh host. Each sequence starts from the last plan of the previous sequence.
func testPartialSyncs(t *testing.T, s *suite) {
	s.clean(t)
	t.Cleanup(func() { s.clean(t) })
	w := newWalk(t, s.backend)
	defer func() { t.Log(w) }()
	d := newDeck()
	for n := range sequences(t, s.backend) {
		if err := w.applySequence(t.Context(), d.deal(randomSequence(n, longestSequence)), false); err != nil {
			t.Fatalf("sequence %d: %v", n, err)
		}
	}
	w.mustHaveBeenPartial(t)
	if w.sequences >= coverageSequences {
		w.mustHaveSeenAll(t)
	}
}

func sequences(t *testing.T, b Backend) int {
	text, set := os.LookupEnv(sequencesVariable)
	if !set {
		return cmp.Or(b.Sequences, sequencesUsually)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: the value must be an integer of at least 1", sequencesVariable, text)
	}
	return n
}

// randomWalk holds a running backend that applies one plan after another in partial syncs, and a fresh host for
// comparison.
type randomWalk struct {
	backend Backend
	proxier proxiers.Proxier
	fresh   *freshHost
	lab     *labAddrs
	changer *changer
	plan    *plan.Plan
	drift   chan string

	sequences, syncs, differences int
	// changes counts the changes of each kind, and patternMatches counts the dumps that each of the backend's patterns
	// matches.
	changes        map[string]int
	patternMatches map[*regexp.Regexp]int
	meter          *meter
	// partialWrites counts the objects that partial syncs wrote. fullWrites counts the objects that full syncs would
	// have written instead. partialSyncs counts the partial syncs in the current sequence. partialWrites, fullWrites
	// and partialSyncs omit syncs in which the node changed.
	partialWrites, fullWrites, partialSyncs int
}

func newWalk(t testing.TB, b Backend) *randomWalk {
	t.Helper()
	w := &randomWalk{
		backend: b, fresh: startFresh(t, b), lab: imaginaryLab(), drift: make(chan string, 1),
		changes: map[string]int{}, patternMatches: map[*regexp.Regexp]int{},
	}
	opts := silentEnv()
	opts.Drift = func(reason string) {
		select {
		case w.drift <- reason:
		default: // one reported drift is enough to fail the test
		}
	}
	var err error
	// The fresh host has already started with the original PATH, so this meter does not count the fresh host's writes.
	if w.meter, err = startMeter(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.meter.stop() })
	if w.proxier, err = b.start(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.proxier.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := w.reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// reset applies the initial plan in a full sync.
func (w *randomWalk) reset(ctx context.Context) error {
	w.changer, w.plan = newSequenceChanger(), nil
	return w.sync(ctx)
}

// applySequence applies a sequence to the current plan, or to the initial plan if fromStart is true. The error
// describes the first difference between this host's state and the fresh host's.
func (w *randomWalk) applySequence(ctx context.Context, seq sequence, fromStart bool) error {
	if fromStart {
		w.changer = newSequenceChanger()
	}
	if err := w.fresh.begin(freshRequest{Sequence: seq, Reset: fromStart}); err != nil {
		return fmt.Errorf("fresh host: %w", err)
	}
	w.changer.done, w.partialSyncs = nil, 0
	err := w.changer.performSequence(seq, func() error { return w.sync(ctx) })
	if fromStart && len(seq) < changeBytes {
		err = w.sync(ctx)
	}
	want, freshErr := w.fresh.end()
	if err = errors.Join(err, freshErr); err != nil {
		return fmt.Errorf("after %s: %w", strings.Join(w.changer.done, ", "), err)
	}
	got, err := w.backend.Dump(ctx)
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	w.fullWrites += w.partialSyncs * want.Writes
	w.sequences++
	for _, name := range w.changer.done {
		w.changes[name]++
	}
	for _, shape := range w.backend.Patterns {
		if shape.MatchString(got) {
			w.patternMatches[shape]++
		}
	}
	if got != want.Dump {
		w.differences++
		return fmt.Errorf("after %s: partial syncs and a full sync lead to different states: %s",
			strings.Join(w.changer.done, ", "), firstDifference(got, want.Dump))
	}
	select {
	case reason := <-w.drift:
		return fmt.Errorf("the backend reported drift although no other program changed its state: %s", reason)
	default:
		return nil
	}
}

func (w *randomWalk) sync(ctx context.Context) error {
	next, err := w.changer.spec.compile(w.lab, w.plan)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, paced(applyTimeout))
	defer cancel()
	prev := w.plan
	w.plan = nil // stays nil if Apply fails
	if _, err := w.meter.countWrites(); err != nil {
		return err
	}
	if err := w.proxier.Apply(ctx, proxiers.NewChange(prev, next)); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	n, err := w.meter.countWrites()
	w.plan = next
	w.syncs++
	if prev != nil && prev.Node == next.Node {
		w.partialSyncs++
		w.partialWrites += n
	}
	return err
}

// mustHaveBeenPartial fails the test if partial syncs wrote more than a third of the objects that full syncs would have
// written.
func (w *randomWalk) mustHaveBeenPartial(t *testing.T) {
	t.Helper()
	if w.partialWrites == 0 || w.partialWrites > w.fullWrites/3 {
		t.Errorf("partial syncs wrote %d objects, and full syncs would have written %d", w.partialWrites, w.fullWrites)
	}
}

// mustHaveSeenAll fails the test if a kind of change did not occur, or if one of the backend's patterns matched no dump
// or every dump.
func (w *randomWalk) mustHaveSeenAll(t *testing.T) {
	t.Helper()
	for _, k := range slices.Concat(serviceChanges, nodeChanges, stateOnlyChanges, stateOnlyNodeChanges) {
		if w.changes[k.name] == 0 {
			t.Errorf("never: %s", k.name)
		}
	}
	for _, shape := range w.backend.Patterns {
		if n := w.patternMatches[shape]; n == 0 || n == w.sequences {
			t.Errorf("%d of %d states match %s", n, w.sequences, shape)
		}
	}
}

func (w *randomWalk) String() string {
	changes := 0
	for _, n := range w.changes {
		changes += n
	}
	s := fmt.Sprintf("partial syncs: %s: %s sequences, %s changes, %s differences; %s syncs", w.backend.Name,
		thousands(w.sequences), thousands(changes), thousands(w.differences), thousands(w.syncs))
	if w.fullWrites > 0 {
		s += fmt.Sprintf(", %d %% of all objects written", 100*w.partialWrites/w.fullWrites)
	}
	return s
}
