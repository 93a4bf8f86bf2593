package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// limits restricts how much memory and how many connections the socket's clients can use. Every member of the socket's
// group can connect. Without limits, 200 clients that requested the plan but did not read the response made the daemon
// use 1 GB of memory.
type limits struct {
	// maxConnections is the maximum number of open connections. When a new connection exceeds this limit, the server
	// closes the oldest connection of the user with the most connections.
	maxConnections int
	// headerTimeout is the time limit for receiving a request's header.
	headerTimeout time.Duration
	// turnTimeout is the maximum time that a request for a large response waits for its turn. The server builds at most
	// two large responses at a time: one for members of the socket's group, and one for root and the daemon's user.
	turnTimeout time.Duration
	// answerTimeout is the time limit for a client to read the response.
	answerTimeout time.Duration
}

// defaultLimits holds the limits for Edgeway's commands, which wait at most 30 s for a response (requestTimeout in
// cmd/edgeway) and read it immediately.
var defaultLimits = limits{
	maxConnections: 16, headerTimeout: 5 * time.Second, turnTimeout: time.Second, answerTimeout: 10 * time.Second,
}

// errBusy is the response to a request that waited too long for its turn. The client retries the request.
var errBusy = errors.New("the daemon is sending a large response to another command: try again")

// answerLarge returns a handler that builds at most one response at a time for owners (isOwner) and one for other
// clients, because the responses grow with the plan.
func (s *Server) answerLarge(f func(*http.Request) (any, error)) http.HandlerFunc {
	answer := s.answer(f)
	return func(w http.ResponseWriter, r *http.Request) {
		turn := s.groupTurn
		if isOwner(r.Context()) { // members of the group must not delay root
			turn = s.ownerTurn
		}
		wait, cancel := context.WithTimeout(r.Context(), s.limits.turnTimeout)
		defer cancel()
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			answer(w, r)
		case <-wait.Done():
			s.write(w, http.StatusServiceUnavailable, failure{errBusy.Error()})
		}
	}
}

func (s *Server) write(w http.ResponseWriter, code int, value any) {
	// The write deadline starts after the encoding, because encoding a large plan takes seconds on a slow single-board
	// computer.
	var body bytes.Buffer
	err := json.NewEncoder(&body).Encode(value)
	if err == nil {
		err = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.answerTimeout))
	}
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, err = body.WriteTo(w)
	}
	if err != nil {
		s.opts.Logger.Debug("cannot send the control response", "error", err)
	}
}
