package api

import corev1 "k8s.io/api/core/v1"

// Edgeway reads the annotations with these keys, which Annotations also returns.
const (
	// AnnotationLastChange is the key of an EndpointSlice annotation. All other keys belong to Service annotations.
	AnnotationLastChange = corev1.EndpointsLastChangeTriggerTime
	// AnnotationPrefix is the key prefix of Edgeway's own annotations.
	AnnotationPrefix = "edgeway.io/"
	// AnnotationTrafficHint enables the flowtable fast path for a Service. The only valid value is "LongLived".
	// KEP-4963 proposes the field spec.trafficHint, which a manifest can use instead of the annotation.
	AnnotationTrafficHint = AnnotationPrefix + "traffic-hint"
	AnnotationScheduler   = AnnotationPrefix + "ipvs-scheduler"
	AnnotationWeights     = AnnotationPrefix + "ipvs-weights"
)

// Annotations returns the keys of all annotations that Edgeway reads.
func Annotations() []string {
	return []string{AnnotationLastChange, AnnotationTrafficHint, AnnotationScheduler, AnnotationWeights}
}
