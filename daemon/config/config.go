// Package config is Edgeway's configuration: one TOML file, edgeway.toml, and the drop-ins
// conf.d/*.toml beside it.
//
// The schema (schema.go) is the only description of the keys. Loading, checking, printing, the
// commented file etc/edgeway/edgeway.toml and the key list of the manual edgeway.toml(5) all come
// from it. Loading is strict: a key that is not in the schema is an error,
// unless it is one that an earlier version had (removed.go).
package config

import (
	"log/slog"
	"net/netip"
	"time"

	"edgeway/proxiers/plan"
)

// Version is the only value of the key "version" that this build reads.
const Version = 1

// DefaultPath is where the daemon and the commands look for the main file.
const DefaultPath = "/etc/edgeway/edgeway.toml"

// DefaultSocket is where the commands look for the daemon when there is no configuration to read.
const DefaultSocket = "/run/edgeway/edgeway.sock"

// Config is the effective configuration. The text of each key in schema.go says what its field means. The comments here
// add what only the Go value has.
type Config struct {
	Node      Node
	Source    Source
	Proxy     Proxy
	Sections  []Section // of backends
	Routes    Routes
	Conntrack Conntrack
	FastPath  FastPath
	Checks    Checks
	Doctor    Doctor
	Health    Health
	Metrics   Metrics
	Log       Log
	Control   Control

	// Removed are the keys that the files set although they no longer exist.
	Removed []Removed
}

// Node is this host as Kubernetes sees it.
type Node struct {
	Name        string       // never empty after Load
	Addresses   []netip.Addr // empty means those of the Node object or, without one, of the default route
	Zone        string       // empty means that of the Node object
	LocalPolicy LocalPolicy
}

// LocalPolicy is the meaning of the traffic policy Local on a host without a Node object.
type LocalPolicy string

// The local policies.
const (
	LocalDrop    LocalPolicy = "drop"
	LocalCluster LocalPolicy = "cluster"
)

// Source holds the sources. After Load at least one of Kube.Kubeconfig and File.Paths is set.
type Source struct {
	Kube      Kube
	File      File
	LastKnown LastKnown
}

// Kube is the API server. It is used when Kubeconfig is not empty.
type Kube struct {
	Kubeconfig       string // absolute
	Namespaces       []string
	LabelSelector    string
	AllowExecPlugins bool
}

// File names the manifest files and their folders. It is used when Paths is not empty.
type File struct {
	Paths []string // absolute
}

// LastKnown is the state kept on disk for a start without the API server.
type LastKnown struct {
	Directory string // absolute
}

// Proxy has the keys that all backends share.
type Proxy struct {
	Backend             string
	Fallback            string        // FallbackNone, or a backend
	IPFamilies          []plan.Family // empty means those that the host has
	LocalDetection      LocalDetection
	ClusterCIDRs        []netip.Prefix
	BridgeInterface     string
	InterfaceNamePrefix string
	MasqueradeAll       bool
	MasqueradeBit       int
	NodePortAddresses   NodePortAddresses
	ServiceCIDRs        []netip.Prefix // beside those of ServiceCIDR objects
	NodePortRange       PortRange      // the zero value is any port
	AllowExternalIPs    ExternalIPs
	AllowLoadBalancers  LoadBalancerIPs
	DenyEndpoints       DeniedEndpoints
}

// LocalDetection is how packets of the pods of this host are recognized.
type LocalDetection string

// The modes of local detection. DetectClusterCIDR uses ClusterCIDRs, DetectNodeCIDR the pod CIDRs of
// the Node object, DetectBridge BridgeInterface, DetectPrefix InterfaceNamePrefix.
const (
	DetectNone        LocalDetection = "none"
	DetectClusterCIDR LocalDetection = "cluster_cidr"
	DetectNodeCIDR    LocalDetection = "node_cidr"
	DetectBridge      LocalDetection = "bridge_interface"
	DetectPrefix      LocalDetection = "interface_name_prefix"
)

// NodePortAddresses are the host's addresses that accept NodePorts: the primary ones, 127.0.0.1 and ::1
// (Localhost), all but loopback, and those in Prefixes.
type NodePortAddresses struct {
	Primary, Localhost, All bool
	Prefixes                []netip.Prefix
}

// ExternalIPs are the external IPs that are served: those in Prefixes that are not this host's, and with Host this
// host's.
type ExternalIPs struct {
	Host     bool
	Prefixes []netip.Prefix
}

// LoadBalancerIPs are the load-balancer addresses that are served: those in Prefixes that are not this host's, and with
// Host this host's.
type LoadBalancerIPs struct {
	Host     bool
	Prefixes []netip.Prefix
}

// DeniedEndpoints are the endpoints that are left out: those in Prefixes, and with Host those that an API server says
// are on this host while the host has no Node object.
type DeniedEndpoints struct {
	Host     bool
	Prefixes []netip.Prefix
}

// PortRange is the ports from First to Last.
type PortRange struct{ First, Last uint16 }

// nftables is the backend of an empty file, and the name of its section.
const nftables = "nftables"

// FallbackNone means that no backend serves instead of one that cannot run.
const FallbackNone = "none"

// Choice is a value of proxy.backend, as the backend describes itself.
type Choice struct {
	Name string
	// Doc is a sentence without a full stop.
	Doc string
	// Settings are the keys of the backend's own section, or nil if it has none.
	Settings []Setting
}

// Setting is a key of a backend's own section: a string with one of Values, or a bool.
type Setting struct {
	Name, Doc      string
	Value, Default any
	Values         []string
}

// Section is a backend's own section.
type Section struct {
	Name     string
	Settings []Setting
}

// Routes are the routes that Edgeway keeps on this host.
type Routes struct {
	Services ServiceRoutes
}

// ServiceRoutes is when Edgeway keeps routes to the addresses of Services.
type ServiceRoutes string

// The values of ServiceRoutes.
const (
	RoutesAuto   ServiceRoutes = "auto"
	RoutesAlways ServiceRoutes = "always"
	RoutesNever  ServiceRoutes = "never"
)

// Conntrack is connection tracking.
type Conntrack struct {
	// MaxPerCore is the number of entries for each processor; 0 leaves the kernel's limit alone.
	MaxPerCore int
}

// FastPath is the way past the rules, for Services that opt in.
type FastPath struct {
	Enabled  bool
	Services []ServiceName
}

// ServiceName names a Service.
type ServiceName struct{ Namespace, Name string }

// String returns "namespace/name".
func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// Checks configures the checks of endpoints.
type Checks struct {
	TCP TCPChecks
}

// TCPChecks configures checks by TCP connections. Without Sources there are none.
type TCPChecks struct {
	Sources  []CheckedSource
	Interval time.Duration
	Failures int
}

// CheckedSource is a source whose endpoints are checked.
type CheckedSource string

// The sources whose endpoints can be checked.
const (
	CheckedFile CheckedSource = "file"
	CheckedKube CheckedSource = "kube"
)

// Doctor configures the lists of faults.
type Doctor struct {
	Ignore []string // IDs whose notices are left out
}

// Health is the server of /healthz, /livez and /readyz. An empty address turns it off.
type Health struct {
	Address string
}

// Metrics is the server of /metrics. An empty address turns it off.
type Metrics struct {
	Address   string
	WebConfig string // absolute, or empty
	Pprof     bool
}

// Log configures the log, on standard error.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

// Control is the socket that the commands talk to.
type Control struct {
	Socket string // absolute
}

// Default returns the configuration of an empty file. It has no source and no node name, so the daemon cannot run with
// it.
func Default() *Config {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	return &Config{
		Node:   Node{LocalPolicy: LocalDrop},
		Source: Source{LastKnown: LastKnown{Directory: "/var/lib/edgeway"}},
		Proxy: Proxy{
			Backend:            nftables,
			Fallback:           "iptables",
			LocalDetection:     DetectNone,
			MasqueradeBit:      14,
			NodePortAddresses:  NodePortAddresses{Primary: true},
			AllowLoadBalancers: LoadBalancerIPs{Prefixes: everything},
			DenyEndpoints:      DeniedEndpoints{Host: true},
			NodePortRange:      PortRange{30000, 32767},
		},
		Routes:    Routes{Services: RoutesAuto},
		Conntrack: Conntrack{MaxPerCore: 32768},
		Checks:    Checks{TCP: TCPChecks{Interval: time.Second, Failures: 2}},
		Health:    Health{Address: ":10256"},
		Metrics:   Metrics{Address: "127.0.0.1:10249"},
		Log:       Log{Level: slog.LevelInfo, Format: "text"},
		Control:   Control{Socket: DefaultSocket},
	}
}
