package cluster_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/test/e2e/cluster"
)

func start(t *testing.T, opts cluster.Options) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func count(ctx context.Context, t *testing.T, c *cluster.Cluster, user string) (services, slices int, err error) {
	t.Helper()
	client, err := c.Client(user)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Core.Services("default").List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil {
		return 0, 0, err
	}
	endpoints, err := client.Discovery.EndpointSlices("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	return len(list.Items), len(endpoints.Items), nil
}

// A cluster keeps loaded objects across a restart, a compaction and a snapshot. The user Edgeway can read objects but
// not write them, and the user Stranger cannot even read them.
func TestCluster(t *testing.T) {
	ctx := t.Context()
	c := start(t, cluster.Options{})
	if err := c.Load(ctx, cluster.Load{Services: 40, Endpoints: 5}); err != nil {
		t.Fatal(err)
	}
	expect := func(c *cluster.Cluster, want int) {
		t.Helper()
		services, slices, err := count(ctx, t, c, cluster.Edgeway)
		if err != nil || services != want || slices != want {
			t.Fatalf("got %d Services, %d slices, error %v; want %d of each", services, slices, err, want)
		}
	}
	expect(c, 40)
	if _, _, err := count(ctx, t, c, cluster.Stranger); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger lists Services: %v", err)
	}
	client, err := c.Client(cluster.Edgeway)
	if err != nil {
		t.Fatal(err)
	}
	err = client.Core.Services("default").Delete(ctx, cluster.ServiceName(1), metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the user %s deletes a Service: %v", cluster.Edgeway, err)
	}

	// Loaded Services must behave like Services that the API server created.
	if err := c.AddService(ctx, 45); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveService(ctx, 45); !apierrors.IsNotFound(err) { // Service 45 has no slice
		t.Fatal(err)
	}
	if err := c.AddService(ctx, 8); !apierrors.IsInvalid(err) { // the ClusterIP is already allocated
		t.Errorf("a loaded Service is made again: %v", err)
	}
	if err := c.UpdateSlice(ctx, cluster.Slice(8, 3)); err != nil {
		t.Error(err)
	}
	if err := c.RemoveService(ctx, 7); err != nil {
		t.Fatal(err)
	}
	c.StopAPIServer()
	if _, _, err := count(ctx, t, c, cluster.Edgeway); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := c.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	expect(c, 39)

	snapshot := filepath.Join(t.TempDir(), "etcd")
	if err := c.Snapshot(ctx, snapshot); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(ctx, cluster.Load{First: 40, Services: 1, Endpoints: 5}); err != nil {
		t.Fatal(err)
	}
	expect(c, 40)
	c.Stop()
	expect(start(t, cluster.Options{RestoreDir: snapshot}), 39)
}
