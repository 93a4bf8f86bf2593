// Package config reads Edgeway's configuration: the TOML file edgeway.toml and its drop-ins, conf.d/*.toml.
//
// The schema (schema.go) is the only description of the keys, and defaults.go holds the default values. The schema
// defines how the package loads, validates and prints a configuration. The schema is also the source of the commented
// file etc/edgeway/edgeway.toml and of the key list in the manual page edgeway.toml(5). Load rejects a key that is not
// in the schema, unless removed.go lists it.
package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// Version is the only value of the key "version" that this build accepts.
const Version = 1

// DefaultPath is the default path of the main configuration file.
const DefaultPath = "/etc/edgeway/edgeway.toml"

// DefaultSocket is the default path of the daemon's socket. The commands also use this path if the configuration is
// invalid or unreadable.
const DefaultSocket = "/run/edgeway/edgeway.sock"

// Config is the effective configuration. The descriptions of the keys in schema.go document the fields. The comments in
// this file document only properties of the Go values.
type Config struct {
	Node      Node
	Source    Source
	Proxy     Proxy
	Sections  []Section
	Routes    Routes
	Conntrack Conntrack
	FastPath  FastPath
	Checks    Checks
	Doctor    Doctor
	Health    Health
	Metrics   Metrics
	Log       Log
	Control   Control

	// RemovedKeys holds the keys that the files set but that Edgeway no longer supports.
	RemovedKeys []RemovedKey
}

// Node describes this host as Kubernetes sees it.
type Node struct {
	Name        string       // Name is never empty after Load
	Addresses   []netip.Addr // an empty list means the addresses of the Node object, or else of the default route
	Zone        string       // an empty zone means the zone of the Node object
	LocalPolicy LocalPolicy
}

// LocalPolicy is the effect of the traffic policy Local on a host without a Node object.
type LocalPolicy string

// LocalDrop and LocalCluster are the values of LocalPolicy.
const (
	LocalDrop    LocalPolicy = "drop"
	LocalCluster LocalPolicy = "cluster"
)

// Source configures the sources. After Load, at least one of Kube.Kubeconfig and File.Paths is not empty.
type Source struct {
	Kube      Kube
	File      File
	LastKnown LastKnown
}

// Kube configures the API server as a source. Edgeway uses the API server if Kubeconfig is not empty.
type Kube struct {
	Kubeconfig       string // Kubeconfig is an absolute path
	Namespaces       []string
	LabelSelector    string
	AllowExecPlugins bool
}

// File lists the manifest files and directories. Edgeway uses manifests if Paths is not empty.
type File struct {
	Paths []string // Paths are absolute
}

// LastKnown configures the last-known state, which the daemon saves to disk and uses if a source is unavailable at
// startup.
type LastKnown struct {
	Directory string // Directory is an absolute path
}

// Proxy holds the keys that all backends share.
type Proxy struct {
	Backend             string
	Fallback            string        // Fallback is FallbackNone or a backend
	IPFamilies          []plan.Family // an empty list means the families that the host supports
	LocalDetection      LocalDetection
	ClusterCIDRs        []netip.Prefix
	BridgeInterface     string
	InterfaceNamePrefix string
	MasqueradeAll       bool
	MasqueradeBit       int
	NodePortAddresses   NodePortAddresses
	ServiceCIDRs        []netip.Prefix // Edgeway adds the CIDRs of ServiceCIDR objects
	NodePortRange       PortRange

	// AllowExternalIPs and AllowLoadBalancers allow this host's addresses only if Host is set, even if Prefixes
	// contains the addresses (CVE-2020-8554).
	AllowExternalIPs, AllowLoadBalancers HostRanges
	// DenyEndpoints rejects the host's own addresses only in EndpointSlices from an API server, and only while the host
	// has no Node object. On a Node, pods in the host network have the host's addresses.
	DenyEndpoints HostRanges
}

// LocalDetection selects how Edgeway recognizes packets from this host's pods.
type LocalDetection string

// The local detection modes. DetectClusterCIDR uses ClusterCIDRs, and DetectNodeCIDR uses the Node object's pod CIDRs.
// DetectBridge uses BridgeInterface, and DetectPrefix uses InterfaceNamePrefix.
const (
	DetectNone        LocalDetection = "none"
	DetectClusterCIDR LocalDetection = "cluster_cidr"
	DetectNodeCIDR    LocalDetection = "node_cidr"
	DetectBridge      LocalDetection = "bridge_interface"
	DetectPrefix      LocalDetection = "interface_name_prefix"
)

// NodePortAddresses selects the addresses at which this host accepts connections to NodePorts. Unlike in kube-proxy,
// ranges of only one family select no addresses of the other family, and the zero value selects no addresses. A range
// selects loopback addresses only if it lies within 127.0.0.0/8 or ::1/128 (KEP-6032).
type NodePortAddresses struct {
	// Primary selects at most one of this host's addresses in each family. If Node.Addresses lists an address of the
	// family, Primary selects only that address. Otherwise, Primary selects an address of the Node object or, if this
	// host has none of the Node object's addresses, the source address of the default route.
	Primary bool
	// Localhost selects 127.0.0.1 and ::1.
	Localhost bool
	// All selects all addresses except loopback addresses.
	All bool
	// Prefixes selects addresses by range. A range within 127.0.0.0/8 or ::1/128 has the same effect as Localhost, but
	// only for the range's own family.
	Prefixes []netip.Prefix
}

// HostRanges selects the addresses in Prefixes and, if Host is set, the host's own addresses.
type HostRanges struct {
	Host     bool
	Prefixes []netip.Prefix
}

// PortRange is the range of ports from First to Last, inclusive. The zero value of PortRange contains all ports.
type PortRange struct{ First, Last uint16 }

// Has reports whether the range contains the port.
func (p PortRange) Has(port uint16) bool { return p.Last == 0 || p.First <= port && port <= p.Last }

// String returns the range in the form "30000-32767".
func (p PortRange) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// FallbackNone is the value of Proxy.Fallback that disables the fallback to another backend.
const FallbackNone = "none"

// Section holds the configuration section of one backend. Values maps the name of each setting to its value, a bool or
// a string.
type Section struct {
	Name     string
	Settings []proxiers.Setting
	Values   map[string]any
}

// Routes configures the kernel routes that Edgeway maintains on this host.
type Routes struct {
	Services ServiceRoutes
}

// ServiceRoutes specifies when Edgeway maintains kernel routes to Service addresses.
type ServiceRoutes string

// RoutesAuto, RoutesAlways and RoutesNever are the values of ServiceRoutes.
const (
	RoutesAuto   ServiceRoutes = "auto"
	RoutesAlways ServiceRoutes = "always"
	RoutesNever  ServiceRoutes = "never"
)

// Conntrack configures connection tracking.
type Conntrack struct {
	// MaxPerCore is the maximum number of connection-tracking entries per CPU, or 0 to keep the kernel's limit.
	MaxPerCore int
}

// FastPath configures the fast path. If a Service opts in, established forwarded connections to the Service use the
// fast path, and their packets bypass all rules and the routing table.
type FastPath struct {
	Enabled  bool
	Services []ServiceName
}

// ServiceName names a Service.
type ServiceName struct{ Namespace, Name string }

// String returns "namespace/name".
func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// Checks configures the endpoint checks.
type Checks struct {
	TCP TCPChecks
}

// TCPChecks configures the endpoint checks that open TCP connections. If Sources is empty, Edgeway checks no endpoints.
type TCPChecks struct {
	Sources  []CheckedSource
	Interval time.Duration
	Failures int
}

// CheckedSource is a source whose endpoints Edgeway checks.
type CheckedSource string

// CheckedFile and CheckedKube are the sources whose endpoints Edgeway can check.
const (
	CheckedFile CheckedSource = "file"
	CheckedKube CheckedSource = "kube"
)

// Doctor configures which notices Edgeway hides.
type Doctor struct {
	Ignore []string // Ignore holds the IDs of notices to hide
}

// Health configures the server for /healthz, /livez and /readyz. An empty address turns the server off.
type Health struct {
	Address string
}

// Metrics configures the server for /metrics. An empty address turns the server off.
type Metrics struct {
	Address   string
	WebConfig string // WebConfig is an absolute path, or ""
	Pprof     bool
	Services  bool // Services enables counting the connections to each Service
}

// Log configures the log, which the daemon writes to standard error.
type Log struct {
	Level  slog.Level
	Format string // Format is "text" or "json"
}

// Control configures the socket on which the daemon receives requests from Edgeway's commands.
type Control struct {
	Socket string // Socket is an absolute path
}
