package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"edgeway/proxiers/fault"
)

// Contact is the result of Try.
type Contact struct {
	Server string // the URL of the API server
	// Latency is the time from the request to the response.
	Latency time.Duration
	// ClockSkew is the time by which this host's clock is ahead of the server's clock, with a resolution of one second.
	// SkewKnown reports whether ClockSkew is known.
	ClockSkew time.Duration
	SkewKnown bool
	// Fault explains why Edgeway cannot read Services, or is the zero Fault if Edgeway can read them.
	Fault fault.Fault
	// Faults lists a fault for each optional resource that the API server refuses to return.
	Faults []fault.Fault
}

// Try requests one Service and one ServiceCIDR from the API server. Try uses the same credentials and the same dialer
// as a Source with the same options. An error means that the kubeconfig is unusable.
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
	namespace := metav1.NamespaceAll
	if len(o.Namespaces) > 0 {
		namespace = o.Namespaces[0]
	}
	out, start := Contact{Server: c.host}, time.Now()
	err = c.try(ctx, c.core, namespace, "services")
	out.Latency = time.Since(start)
	out.ClockSkew, out.SkewKnown = c.transport.clock.skew()
	if err != nil {
		out.Fault = newFailure(c.host, "list services", err, o.Kubeconfig).Fault
		return out, nil
	}
	if err := c.try(ctx, c.networking, metav1.NamespaceAll, serviceCIDRs); apierrors.IsForbidden(err) {
		out.Faults = append(out.Faults, rangesFault(newFailure(c.host, "list "+serviceCIDRs, err, o.Kubeconfig)))
	}
	return out, nil
}

func (c *client) try(ctx context.Context, group rest.Interface, namespace, resource string) error {
	return group.Get().Namespace(namespace).Resource(resource).
		VersionedParams(&metav1.ListOptions{Limit: 1}, c.params).MaxRetries(0).Do(ctx).Error()
}
