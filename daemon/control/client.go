package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"edgeway/daemon/doctor"
)

// ErrNotRunning means that no daemon is listening on the socket.
var ErrNotRunning = errors.New("the edgeway daemon is not running")

// ErrDenied means that the user lacks permission to connect to the socket.
var ErrDenied = errors.New("no permission")

// Client sends requests to the daemon.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a Client that opens a new connection for each call.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}
	return c
}

// Status returns the daemon's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "status", nil, &s)
}

// Facts returns the facts that the doctor needs from the daemon.
func (c *Client) Facts(ctx context.Context) (doctor.Facts, error) {
	var f doctor.Facts
	return f, c.call(ctx, http.MethodGet, "facts", nil, &f)
}

// Plan returns the plan for the Service called name ("namespace/name"), or for all Services if name is "".
func (c *Client) Plan(ctx context.Context, name string) (Plan, error) {
	var p Plan
	return p, c.call(ctx, http.MethodGet, "plan", url.Values{"service": {name}}, &p)
}

// Services returns the Services that filter selects. filter is a namespace, "namespace/name" for a single Service, or
// "" for all Services.
func (c *Client) Services(ctx context.Context, filter string) (ServiceList, error) {
	var list ServiceList
	return list, c.call(ctx, http.MethodGet, "services", url.Values{"only": {filter}}, &list)
}

// Explain asks the daemon how it handles a connection. See Explainer.Explain.
func (c *Client) Explain(ctx context.Context, src, dst, proto string) (Explanation, error) {
	var e Explanation
	return e, c.call(ctx, http.MethodGet, "explain", url.Values{"src": {src}, "dst": {dst}, "proto": {proto}}, &e)
}

// Reload asks the daemon to reload its configuration. If the daemon rejects the new configuration, Reload returns the
// reason.
func (c *Client) Reload(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "reload", nil, &struct{}{})
}

// busyRetryDelay is the delay before the Client repeats a request to a busy daemon.
const busyRetryDelay = 250 * time.Millisecond

// call sends a request and repeats it until the daemon is no longer busy or ctx is done.
func (c *Client) call(ctx context.Context, method, what string, query url.Values, into any) error {
	for {
		err := c.once(ctx, method, what, query, into)
		if !errors.Is(err, errBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(busyRetryDelay):
		}
	}
}

func (c *Client) once(ctx context.Context, method, what string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://edgeway/v1/"+what+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explainFailure(what, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errBusy
	}
	if resp.StatusCode != http.StatusOK {
		var f failure
		if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || f.Error == "" {
			return fmt.Errorf("%s: the daemon answered %s", what, resp.Status)
		}
		err := errors.New(f.Error)
		if resp.StatusCode == http.StatusBadRequest {
			return argumentError{err}
		}
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return c.explainFailure(what, fmt.Errorf("the daemon's response: %w", err))
	}
	return nil
}

func (c *Client) explainFailure(what string, err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(os.ErrNotExist), is(syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nothing listens on %s", ErrNotRunning, c.socket)
	case is(os.ErrPermission):
		return fmt.Errorf("%s: %w to use the socket %s: run the command as root, or as a member of the socket's group "+
			"(edgeway-status by default)", what, ErrDenied, c.socket)
	case is(io.EOF), is(io.ErrUnexpectedEOF), is(syscall.ECONNRESET), is(syscall.EPIPE):
		return fmt.Errorf("%s: the daemon closed the connection, because it stopped or because your user is "+
			"running too many commands at once: try again: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
