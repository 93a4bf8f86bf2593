package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Contact is what one request to the API server found.
type Contact struct {
	Server string // its URL
	// Took is how long the answer took.
	Took time.Duration
	// Ahead is how far this host's clock is ahead of the server's, exact to a second. Dated says that it is known.
	Ahead time.Duration
	Dated bool
	// Fix is what to do about the error.
	Fix string
}

// Try requests one Service from the API server, with the credentials and the dialer of a Source with these options. The
// error says in plain words why Services cannot be read; the Contact then has what is known nevertheless, and the fix.
func Try(ctx context.Context, o Options) (Contact, error) {
	if _, err := checkOptions(&o); err != nil {
		return Contact{}, err
	}
	a, err := loadKubeconfig(o.Kubeconfig, o.AllowExecPlugins)
	if err != nil {
		return Contact{}, err
	}
	c, err := newClient(a.config, newDialer(o))
	if err != nil {
		return Contact{}, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	c.begin()
	path := "api/v1/"
	if len(o.Namespaces) > 0 {
		path += "namespaces/" + o.Namespaces[0] + "/"
	}
	url := c.server.JoinPath(path + "services")
	url.RawQuery = "limit=1"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), http.NoBody)
	if err != nil {
		return Contact{}, err
	}
	out, start := Contact{Server: c.host}, time.Now()
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return out.failed(err, o.Kubeconfig)
	}
	defer resp.Body.Close()
	out.Took = time.Since(start)
	// The header (RFC 9110) leaves out the part of the second that has passed.
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		out.Ahead, out.Dated = start.Add(out.Took/2).Sub(at.Add(time.Second/2)), true
	}
	if resp.StatusCode != http.StatusOK {
		status := metav1.Status{Code: int32(resp.StatusCode), Message: resp.Status}
		return out.failed(&apierrors.StatusError{ErrStatus: status}, o.Kubeconfig)
	}
	return out, nil
}

func (c Contact) failed(err error, kubeconfig string) (Contact, error) {
	f := newFailure(c.Server, "list services", err, kubeconfig)
	c.Fix = f.fix
	return c, errors.New(f.text)
}
