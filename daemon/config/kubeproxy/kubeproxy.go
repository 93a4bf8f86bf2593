// Package kubeproxy makes a configuration of Edgeway of one of kube-proxy.
package kubeproxy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"edgeway/daemon/config"
)

// Convert gives an edgeway.toml that does what a KubeProxyConfiguration in YAML asks for, and a note for each setting that
// has no counterpart, or has another meaning or another default. The text may also be a ConfigMap that holds the
// configuration as config.conf, as kubeadm makes it. backends are the values that proxy.backend may have.
func Convert(text []byte, backends []config.Choice) (toml string, notes []string, err error) {
	c := &converter{out: config.Default(), backends: backends}
	if err := c.read(text); err != nil {
		return "", nil, err
	}
	c.connection()
	c.node()
	c.servers()
	c.mode()
	c.detection()
	c.nodePorts()
	c.conntrack()
	c.gates()
	c.logging()
	c.ignoreDefaults()
	c.leftovers("", reflect.ValueOf(&c.in).Elem())
	return "# Made of a KubeProxyConfiguration by edgeway convert.\n" + config.Difference(c.out), c.notes, nil
}

// converter empties in as it fills out: what is left in the end has no counterpart.
type converter struct {
	in       configuration
	out      *config.Config
	backends []config.Choice
	// newest says that the mode is nftables, whose defaults for NodePorts are others.
	newest bool
	notes  []string
}

func (c *converter) notef(setting, format string, args ...any) {
	c.notes = append(c.notes, setting+": "+fmt.Sprintf(format, args...))
}

const kind = "KubeProxyConfiguration"

func (c *converter) read(text []byte) error {
	var outer struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &outer); err != nil {
		return fmt.Errorf("kube-proxy's configuration does not parse: %w", err)
	}
	switch inner := outer.Data["config.conf"]; {
	case outer.Kind == kind:
	case outer.Kind == "ConfigMap" && inner != "":
		text = []byte(inner)
	default:
		return fmt.Errorf("kube-proxy's configuration: the kind is %q: it must be %s, or a ConfigMap with config.conf", outer.Kind, kind)
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("kube-proxy's configuration does not parse: %w", err)
	}
	unknown, err := kjson.UnmarshalStrict(data, &c.in)
	if err != nil {
		return fmt.Errorf("kube-proxy's configuration: %w", err)
	}
	const version = "kubeproxy.config.k8s.io/v1alpha1"
	if c.in.Kind != kind || c.in.APIVersion != version {
		return fmt.Errorf("kube-proxy's configuration: it is %q of %q: it must be %s of %s", c.in.Kind, c.in.APIVersion, kind, version)
	}
	c.in.Kind, c.in.APIVersion = "", ""
	for _, fault := range unknown {
		if what, field, ok := strings.Cut(fault.Error(), ` "`); ok {
			c.notef(strings.TrimSuffix(field, `"`), "%s, which is left out: kube-proxy 1.36 does not have it", what)
		}
	}
	return nil
}

// take gives a field's value and empties the field.
func take[T any](field *T) T {
	value := *field
	*field = *new(T)
	return value
}

// leftovers notes each field that is not empty.
func (c *converter) leftovers(path string, v reflect.Value) {
	if v.Kind() != reflect.Struct || strings.HasSuffix(v.Type().Name(), "Duration") {
		if !v.IsZero() && !empty(v.Interface()) {
			c.notef(path, "%s", reason(path))
		}
		return
	}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		c.leftovers(strings.TrimPrefix(path+"."+name, "."), v.Field(i))
	}
}

// empty says that a value has nothing but zeros, as kubeadm writes them.
func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			if !empty(inner) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(v, func(inner any) bool { return !empty(inner) })
	case []string:
		return len(v) == 0
	}
	return v == nil || v == "" || v == "0" || v == false || v == int64(0)
}

// reason says why a setting has no counterpart.
func reason(path string) string {
	for _, r := range [...]struct{ prefix, why string }{
		{"clientConnection.", "no counterpart: the daemon sends few requests, and asks for protobuf"},
		{"bindAddressHardFail", "no counterpart: an address that cannot be bound is tried again"},
		{"configSyncPeriod", "no counterpart: changes are watched"},
		{"ipvs.scheduler", "set scheduler in the section of this name"},
		{"ipvs.strictARP", "set strict_arp in the section of this name"},
		{"ipvs.excludeCIDRs", "no counterpart: virtual servers of others are never touched"},
		{"ipvs.", "no counterpart: connections are connection tracking's, which has the time-outs"},
		{"winkernel.", "no counterpart: it is for Windows"},
		{"windowsRunAsService", "no counterpart: it is for Windows"},
		{"portRange", "no counterpart: kube-proxy does not use it either"},
		{"showHiddenMetricsForVersion", "no counterpart: no metrics are hidden"},
		{"oomScoreAdj", "write OOMScoreAdjust= into a drop-in of edgeway.service (systemctl edit edgeway)"},
		{"featureGates", "no counterpart: there are no gates"},
		{"logging.", "no counterpart: log.format and log.level are all"},
		{"clusterCIDR", "left out: kube-proxy reads it with detectLocalMode ClusterCIDR alone"},
		{"detectLocal.", "left out: kube-proxy reads it with its own detectLocalMode alone"},
	} {
		if strings.HasPrefix(path, r.prefix) {
			return r.why
		}
	}
	if strings.HasSuffix(path, ".syncPeriod") {
		return "no counterpart: a failed sync is tried again after a back-off"
	}
	return "left out: it belongs to another mode"
}

// hasBackend says whether proxy.backend may have the value.
func (c *converter) hasBackend(name string) bool {
	return slices.ContainsFunc(c.backends, func(b config.Choice) bool { return b.Name == name })
}

var errHost = errors.New("the host must be an address")
