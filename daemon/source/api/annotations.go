package api

import corev1 "k8s.io/api/core/v1"

// Edgeway reads these annotations; see also Annotations.
const (
	// AnnotationLastChange is an annotation of EndpointSlices. All other annotations are annotations of Services.
	AnnotationLastChange = corev1.EndpointsLastChangeTriggerTime
	// AnnotationPrefix is the key prefix of Edgeway's own annotations.
	AnnotationPrefix = "edgeway.io/"
	// AnnotationTrafficHint enables the flowtable fast path for a Service. The only valid value is "LongLived".
	// KEP-4963 proposes this hint as the field spec.trafficHint, which manifests can also use.
	AnnotationTrafficHint = AnnotationPrefix + "traffic-hint"
	AnnotationScheduler   = AnnotationPrefix + "ipvs-scheduler"
	AnnotationWeights     = AnnotationPrefix + "ipvs-weights"
)

// Annotations returns the keys of all annotations that Edgeway reads.
func Annotations() []string {
	return []string{AnnotationLastChange, AnnotationTrafficHint, AnnotationScheduler, AnnotationWeights}
}
