package kubeproxy

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Samples gives a value for each field, as YAML, that is nobody's default.
func Samples() map[string]string {
	out := map[string]string{}
	sample(out, "", reflect.TypeFor[configuration]())
	delete(out, "apiVersion")
	delete(out, "kind")
	delete(out, "nftables.localhostNodePorts") // kube-proxy has none
	return out
}

func sample(out map[string]string, path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && t != reflect.TypeFor[metav1.Duration]() {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			sample(out, strings.TrimPrefix(path+"."+name, "."), f.Type)
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Interface:
		out[path] = "7s"
	case reflect.String:
		out[path] = "x"
	case reflect.Bool:
		out[path] = "true"
	case reflect.Slice:
		out[path] = "[192.0.2.0/24]"
	case reflect.Map:
		out[path] = "{SomeGate: true}"
	default:
		out[path] = "7"
	}
}
