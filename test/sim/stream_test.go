package sim

import (
	"io"
	"os"
	"sync"
	"time"
)

type stream struct {
	mu    sync.Mutex
	moved *sync.Cond
	data  []byte
	held  bool
	lost  bool  // the stream no longer delivers data
	ended bool  // the writer has closed the stream
	err   error // the error that a read returns before any remaining data
	late  bool  // the reader's deadline has passed
	timer *time.Timer
}

func newStream(held bool) *stream {
	s := &stream{held: held}
	s.moved = sync.NewCond(&s.mu)
	return s
}

func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.moved.Broadcast()
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch open := !s.held && !s.lost; {
		case s.err != nil:
			return 0, s.err
		case s.late:
			return 0, os.ErrDeadlineExceeded
		case open && len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case open && s.ended:
			return 0, io.EOF
		}
		s.moved.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.change(func() { s.data = append(s.data, p...) })
	return len(p), nil
}

func (s *stream) dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *stream) hold(held bool) { s.change(func() { s.held = held }) }
func (s *stream) lose()          { s.change(func() { s.lost = true }) }
func (s *stream) finish()        { s.change(func() { s.ended = true }) }

func (s *stream) end(err error) {
	s.change(func() {
		if s.err == nil {
			s.err, s.data = err, nil
		}
		if s.timer != nil {
			s.timer.Stop()
		}
	})
}

func (s *stream) deadline(t time.Time) {
	s.change(func() {
		if s.timer != nil {
			s.timer.Stop()
		}
		s.late = !t.IsZero() && !t.After(time.Now())
		if !t.IsZero() && !s.late && s.err == nil {
			s.timer = time.AfterFunc(time.Until(t), func() { s.change(func() { s.late = true }) })
		}
	})
}
