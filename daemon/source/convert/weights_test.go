package convert

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
)

func TestWeights(t *testing.T) {
	in := parse[corev1.Service](t, `
metadata: {namespace: shop, name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
`)
	in.Annotations = map[string]string{
		api.AnnotationWeights: " edge-1=3,10.0.0.7=2, fd00::/64=65535 ,::ffff:10.0.0.8=1",
	}
	got, _ := new(Converter).Service(in)
	want := []source.Weight{
		{Node: "edge-1", Weight: 3},
		{Range: prefixes("10.0.0.7/32")[0], Weight: 2},
		{Range: prefixes("fd00::/64")[0], Weight: 65535},
		{Range: prefixes("10.0.0.8/32")[0], Weight: 1},
	}
	if !slices.Equal(got.Weights, want) || len(got.Faults) > 0 || Validate(got) != nil {
		t.Errorf("got %+v, %v, %v; want %+v", got.Weights, got.Faults, Validate(got), want)
	}
	for _, bad := range []string{
		"edge-1", "edge-1=0", "edge-1=-1", "edge-1=65536", "Edge_1=2", "=2", "10.0.0.0/33=2",
		"10.0.0.7:80=2", "edge-1=2;edge-2=3",
	} {
		in.Annotations[api.AnnotationWeights] = bad + ", edge-2=4"
		got, _ := new(Converter).Service(in)
		if len(got.Faults) != 1 || !strings.Contains(got.Faults[0].Field, "edgeway.io/ipvs-weights") ||
			!slices.Equal(got.Weights, []source.Weight{{Node: "edge-2", Weight: 4}}) {
			t.Errorf("%q: %+v, %v", bad, got.Weights, got.Faults)
		}
	}
	in.Annotations[api.AnnotationWeights] = strings.Repeat("edge-1=3,", maxWeights+1) + "edge-1=3"
	if got, _ := new(Converter).Service(in); len(got.Weights) != maxWeights || len(got.Faults) != 1 {
		t.Errorf("too many: %d weights, %v", len(got.Weights), got.Faults)
	}
}
