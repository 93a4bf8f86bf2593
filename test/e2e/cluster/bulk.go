package cluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Load writes the Services and EndpointSlices of l directly to etcd, in the API server's storage format, with an
// IPAddress object for each ClusterIP. The API server (v1.36) counts all allocated addresses for a metric, so the time
// that it needs to create a Service grows with the number of Services. Creating 30,000 Services through the API server
// would take half an hour instead of a few seconds.
func (c *Cluster) Load(ctx context.Context, l Load) error {
	const perTxn = 100
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	end := l.First + l.Services
	for first := l.First; first < end; first += perTxn {
		group.Go(func() error {
			objects := map[string][]byte{}
			for i := first; i < min(first+perTxn, end); i++ {
				stored, err := storedObjects(i, l.Endpoints)
				if err != nil {
					return err
				}
				maps.Copy(objects, stored)
			}
			return c.etcdPut(ctx, objects)
		})
	}
	return group.Wait()
}

func storedObjects(i, endpoints int) (map[string][]byte, error) {
	svc, slice, address := Service(i), Slice(i, endpoints), ipAddress(i)
	svc.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	address.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IPAddress"}
	for _, meta := range []*metav1.ObjectMeta{&svc.ObjectMeta, &slice.ObjectMeta, &address.ObjectMeta} {
		meta.UID, meta.CreationTimestamp, meta.Generation = uuid.NewUUID(), metav1.NewTime(time.Now()), 1
	}
	out := map[string][]byte{}
	for key, obj := range map[string]runtime.Object{
		"/registry/services/specs/" + svc.Namespace + "/" + svc.Name:     svc,
		"/registry/endpointslices/" + slice.Namespace + "/" + slice.Name: slice,
		"/registry/ipaddresses/" + address.Name:                          address,
	} {
		var buf bytes.Buffer
		// Only decoding needs an object creator and an object typer.
		if err := protobuf.NewSerializer(nil, nil).Encode(obj, &buf); err != nil {
			return nil, fmt.Errorf("encoding of %s: %w", key, err)
		}
		out[key] = buf.Bytes()
	}
	return out, nil
}

// ipAddress returns the object that marks the ClusterIP of Service i as allocated.
func ipAddress(i int) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: ClusterIP(i).String(),
			Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(corev1.IPv4Protocol),
				networkingv1.LabelManagedBy:       "ipallocator.k8s.io",
			},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: corev1.NamespaceDefault, Name: ServiceName(i),
		}},
	}
}
