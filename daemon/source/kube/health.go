package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"edgeway/daemon/clean"
)

// health is what a feed knows about its connection.
type health struct {
	mu      sync.Mutex
	contact time.Time
	fault   string
}

// touch notes that the API server was heard.
func (h *health) touch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.contact = time.Now()
}

// ok notes that the API server was heard and that all is well; it reports whether it was not before.
func (h *health) ok() (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.contact = time.Now()
	changed, h.fault = h.fault != "", ""
	return changed
}

func (h *health) fail(fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

func (h *health) get() (contact time.Time, fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.contact, h.fault
}

// logState is what was logged about the API server.
type logState struct {
	faults map[string]time.Time // when each fault was logged last
	open   bool                 // a fault was logged, its end was not
}

// repeatAfter is when the same fault is worth another line. Before that, an API server that fails
// and works in turn adds nothing to the log.
const repeatAfter = 10 * time.Minute

// logChange logs a fault that is new, and the end of those that were logged.
func (s *Source) logChange() {
	fault := s.Status().Err
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.logged
	if fault == "" {
		if l.open {
			s.log.Info("api server usable again", "server", s.client.host)
		}
		l.open = false
		return
	}
	maps.DeleteFunc(l.faults, func(_ string, at time.Time) bool { return time.Since(at) > repeatAfter })
	if _, known := l.faults[fault]; known {
		return
	}
	if l.faults == nil {
		l.faults = make(map[string]time.Time)
	}
	l.faults[fault], l.open = time.Now(), true
	s.log.Warn("api server not usable", "error", fault)
}

// describe says in plain words what went wrong with a request. The same fault always gives the same
// text: ports and addresses of a single connection are left out.
func describe(host, what string, err error) string { return clean.Line(explain(host, what, err)) }

func explain(host, what string, err error) string {
	what = fmt.Sprintf("%s from %s", what, host)
	var (
		op     *net.OpError
		errno  syscall.Errno
		status apierrors.APIStatus
		u      *url.Error
	)
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("connect to %s: %s", host, root(op.Err))
	case errors.As(err, &errno):
		return fmt.Sprintf("%s: %s", what, errno)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%s: the credentials are not accepted (401)", what)
	case errors.As(err, &status):
		return fmt.Sprintf("%s: %.300s (%d)", what, status.Status().Message, status.Status().Code)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s: no complete answer in time", what)
	case errors.As(err, &u):
		return fmt.Sprintf("%s: %.300s", what, u.Err)
	}
	return fmt.Sprintf("%s: %.300s", what, err)
}

// root gives the innermost text of a failed dial: "connection refused", "no such host", "i/o timeout".
func root(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.Err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timed out"
	}
	return err.Error()
}

// isDenied says that asking again soon is pointless: no permission, or no such resource.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// refusesStream says that the API server cannot send a list as a stream (before v1.32, or with the
// feature WatchList switched off), but may have a plain list.
func refusesStream(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && slices.Contains([]int32{400, 405, 406, 415, 422}, status.Status().Code)
}
