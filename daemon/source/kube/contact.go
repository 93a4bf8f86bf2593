package kube

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/fault"
)

// Contact is the result of one request to the API server.
type Contact struct {
	Server string // the URL of the API server
	// Took is the time from the request to the response.
	Took time.Duration
	// Ahead is the time by which this host's clock is ahead of the server's clock, with a resolution of one second.
	// Dated reports whether Ahead is known.
	Ahead time.Duration
	Dated bool
	// Fault explains why Edgeway cannot read Services, or is the zero Fault.
	Fault fault.Fault
	// Faults lists a fault for each optional resource that the API server refuses to return.
	Faults []fault.Fault
}

// Try requests one Service and one ServiceCIDR from the API server. Try uses the credentials and the dialer that a
// Source with the same options would use. The error is about the kubeconfig.
func Try(ctx context.Context, o Options) (Contact, error) {
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
	out, start := Contact{Server: c.host}, time.Now()
	err = c.try(ctx, path+"services")
	out.Took = time.Since(start)
	out.Ahead, out.Dated = c.transport.clock.ahead()
	if err != nil {
		out.Fault = newFailure(c.host, "list services", err, o.Kubeconfig).Fault
		return out, nil
	}
	if err := c.try(ctx, "apis/networking.k8s.io/v1/"+serviceCIDRs); apierrors.IsForbidden(err) {
		out.Faults = append(out.Faults, rangesFault(newFailure(c.host, "list "+serviceCIDRs, err, o.Kubeconfig)))
	}
	return out, nil
}

func (c *client) try(ctx context.Context, path string) error {
	url := c.server.JoinPath(path)
	url.RawQuery = "limit=1"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		status := metav1.Status{Code: int32(resp.StatusCode), Message: resp.Status}
		return &apierrors.StatusError{ErrStatus: status}
	}
	return nil
}
