package kube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/daemon/text"
)

type health struct {
	mu      sync.Mutex
	contact time.Time // the time of the last decoded list or event, which proves that the API server works
	failure failure
	// missedBookmark is the time when a long watch last ended without the bookmark that is due each minute.
	missedBookmark time.Time
}

// noteContact records that Edgeway has decoded a list or an event, which proves that the API server works.
func (h *health) noteContact() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.contact, h.failure = time.Now(), failure{}
}

func (h *health) fail(f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = f
}

func (h *health) noteNoBookmark() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missedBookmark = time.Now()
}

func (h *health) lacksBookmarks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.missedBookmark) < shortTime
}

func (h *health) get() (contact time.Time, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.contact, h.failure
}

// describe explains in plain words why a request failed. The text omits details of a single connection, such as a port,
// so that the same fault always has the same text.
func describe(host, what string, err error) string { return text.CleanLine(explain(host, what, err)) }

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
		return fmt.Sprintf("connect to %s: %s", host, rootCause(op.Err))
	case errors.As(err, &op) && (op.Op == "read" || op.Op == "write"):
		return fmt.Sprintf("%s: the connection failed: %s", what, rootCause(op.Err))
	case errors.As(err, &errno):
		return fmt.Sprintf("%s: %s", what, errno)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return what + ": the connection was closed before the response was complete"
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%s: the server rejected the credentials (401)", what)
	case errors.As(err, &status):
		return fmt.Sprintf("%s: %.300s (%d)", what, status.Status().Message, status.Status().Code)
	case errors.As(err, &u):
		err = u.Err
	}
	why := streamID.ReplaceAllString(err.Error(), "")
	if strings.HasPrefix(why, "stream error: ") {
		why = "the response was cut off: " + why
	}
	return fmt.Sprintf("%s: %.300s", what, why)
}

// streamID matches the stream IDs in net/http's HTTP/2 errors.
var streamID = regexp.MustCompile(`(stream ID |LastStreamID=)\d+[;,]? ?`)

// rootCause returns the innermost error text of a failed dial, such as "connection refused", "no such host" or "timed
// out".
func rootCause(err error) string {
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

// isDenied reports whether the API server denied the request because of a missing permission or an unknown resource. An
// immediate retry of a denied request fails too.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// isOverloaded reports whether the API server or its load balancer asks the client to retry later.
func isOverloaded(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && slices.Contains([]int32{429, 502, 503}, status.Status().Code)
}

// isAhead reports whether a request failed because its resource version is newer than the API server's data. The
// reflector then retries without a resource version.
func isAhead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// refusesStream reports whether the API server cannot stream a list but may return a plain list. API servers before
// v1.32, and API servers without the WatchList feature, cannot stream lists.
func refusesStream(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && slices.Contains([]int32{400, 405, 406, 415, 422}, status.Status().Code)
}
