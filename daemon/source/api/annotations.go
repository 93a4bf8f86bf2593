package api

import corev1 "k8s.io/api/core/v1"

// Edgeway reads annotations with these keys. Annotations returns the keys as a list.
const (
	// AnnotationLastChange is the key of an annotation on EndpointSlices. All other keys are for annotations on
	// Services.
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
