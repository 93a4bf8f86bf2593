// Package floor is a service proxy that does as little as possible. The proxy watches the EndpointSlices of a
// cluster.Load, and writes a transaction for each event to a netlink socket that stays open. The proxy does not
// validate or merge events, does not save state on disk, and supports only one kind of Service. If a benchmark measures
// both Edgeway and floor, the difference between their results is the cost of everything else that Edgeway does.
package floor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"

	"edgeway/test/e2e/cluster"
)

// ruleset forwards each connection to a random endpoint of the Service. Like Edgeway's rules, ruleset rejects
// connections to a Service without endpoints. If the kernel dropped the packets instead, clients would wait for a
// response.
const ruleset = `table ip floor {
	map endpoints {
		type ipv4_addr . mark : ipv4_addr . inet_service
	}
	chain output {
		type nat hook output priority -100
		ip daddr %[1]s meta mark set numgen random mod %[2]d
		ip protocol tcp dnat ip to ip daddr . meta mark map @endpoints
	}
	chain refuse {
		type filter hook output priority 0
		ip daddr %[1]s reject with tcp reset
	}
}
`

type proxy struct {
	slices discoveryv1client.EndpointSliceInterface
	table  *table
	// elements maps the name of each EndpointSlice to its elements in the kernel.
	elements map[string][]element
}

// Run writes the rules for all Services to this network namespace, and then applies each change until ctx is done. All
// Services must have the same number of endpoints. The network namespace must contain no rules from an earlier run.
func Run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := discoveryv1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	p := &proxy{slices: client.EndpointSlices(metav1.NamespaceAll), elements: map[string][]element{}}
	if p.table, err = openTable(); err != nil {
		return err
	}
	defer p.table.close()
	version, err := p.begin(ctx)
	for err == nil {
		version, err = p.follow(ctx, version)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin writes the rules and the elements of all existing EndpointSlices to the kernel, and returns the resource
// version at which the watch must start.
func (p *proxy) begin(ctx context.Context) (string, error) {
	list, err := p.slices.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return "", fmt.Errorf("listing EndpointSlices: %w", err)
	}
	var all []element
	endpoints := 1
	for i := range list.Items {
		elements := elementsOf(&list.Items[i])
		p.elements[list.Items[i].Name] = elements
		all, endpoints = append(all, elements...), max(endpoints, len(elements))
	}
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(ruleset, cluster.ServiceCIDRs()[0], endpoints))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("rules: %w: %s", err, out)
	}
	return list.ResourceVersion, p.table.commit(nil, all)
}

// follow starts a watch at the given resource version, applies the changes until the watch ends, and returns the
// resource version of the last event.
func (p *proxy) follow(ctx context.Context, version string) (string, error) {
	w, err := p.slices.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return version, fmt.Errorf("watching EndpointSlices: %w", err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return version, fmt.Errorf("watching EndpointSlices: %w", apierrors.FromObject(e.Object))
		}
		slice, ok := e.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			return version, errors.New("watching EndpointSlices: unexpected object")
		}
		version = slice.ResourceVersion
		if e.Type == watch.Bookmark {
			continue
		}
		var next []element
		if e.Type != watch.Deleted {
			next = elementsOf(slice)
		}
		if err := p.table.commit(differences(p.elements[slice.Name], next)); err != nil {
			return version, err
		}
		p.elements[slice.Name] = next
	}
	return version, ctx.Err()
}

// elementsOf returns the map elements for the endpoints of an EndpointSlice, or nil if the EndpointSlice does not
// belong to a cluster.Load.
func elementsOf(slice *discoveryv1.EndpointSlice) (all []element) {
	i, ok := cluster.ServiceNumber(slice.Name)
	if !ok {
		return nil
	}
	for j, e := range slice.Endpoints {
		all = append(all, newElement(cluster.ClusterIP(i), j, e.Addresses[0]))
	}
	return all
}

// differences compares two lists by index. gone holds the removed elements and the old versions of changed elements.
// come holds the added elements and the new versions of changed elements.
func differences(before, now []element) (gone, come []element) {
	for i := range max(len(before), len(now)) {
		switch {
		case i >= len(now):
			gone = append(gone, before[i])
		case i >= len(before):
			come = append(come, now[i])
		case before[i] != now[i]:
			gone, come = append(gone, before[i]), append(come, now[i])
		}
	}
	return gone, come
}
