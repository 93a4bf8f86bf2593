package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"edgeway/daemon/doctor"
)

// ErrNotRunning says that no daemon answers at the socket.
var ErrNotRunning = errors.New("the edgeway daemon is not running")

// Client talks to the daemon.
type Client struct {
	socket string
	http   http.Client
}

// NewClient does not connect; each call does.
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

// Status asks for the state of the daemon.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "status", nil, &s)
}

// Facts asks for what the daemon knows, in its own terms.
func (c *Client) Facts(ctx context.Context) (doctor.Facts, error) {
	var f doctor.Facts
	return f, c.call(ctx, http.MethodGet, "facts", nil, &f)
}

// Plan asks for the plan; with a name ("namespace/name"), only for that Service.
func (c *Client) Plan(ctx context.Context, name string) (Plan, error) {
	var p Plan
	return p, c.call(ctx, http.MethodGet, "plan", url.Values{"service": {name}}, &p)
}

// Services asks for the names of all Services: "namespace/name".
func (c *Client) Services(ctx context.Context) ([]string, error) {
	var names []string
	return names, c.call(ctx, http.MethodGet, "services", nil, &names)
}

// Explain asks what happens to a connection; see Subject.Explain.
func (c *Client) Explain(ctx context.Context, src, dst, proto string) (Explanation, error) {
	var e Explanation
	return e, c.call(ctx, http.MethodGet, "explain", url.Values{"src": {src}, "dst": {dst}, "proto": {proto}}, &e)
}

// Reload makes the daemon read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "reload", nil, &struct{}{})
}

func (c *Client) call(ctx context.Context, method, what string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://edgeway/v1/"+what+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explainFailure(what, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var f failure
		if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || f.Error == "" {
			return fmt.Errorf("%s: the daemon answered %s", what, resp.Status)
		}
		return errors.New(f.Error)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s: read the daemon's answer: %w", what, err)
	}
	return nil
}

func (c *Client) explainFailure(what string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nothing listens on %s", ErrNotRunning, c.socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: no permission to use %s: run the command as root%s", what, c.socket, orAsMember(c.socket))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// orAsMember names the socket's group, which may ask, unless it is root's.
func orAsMember(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Gid == 0 || info.Mode().Perm()&0o060 != 0o060 {
		return ""
	}
	group := strconv.FormatUint(uint64(owner.Gid), 10)
	if known, err := user.LookupGroupId(group); err == nil {
		group = known.Name
	}
	return ", or as a member of the group " + group
}
