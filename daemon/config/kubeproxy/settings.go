package kubeproxy

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/daemon/config"
)

// ownKubeconfig is where the manuals put a kubeconfig.
const ownKubeconfig = "/etc/edgeway/kubeconfig"

func (c *converter) connection() {
	path := take(&c.in.ClientConnection.Kubeconfig)
	switch {
	case path == "":
		c.notef("clientConnection.kubeconfig", "without it kube-proxy uses the service account of its pod: make a kubeconfig, as %s", ownKubeconfig)
		path = ownKubeconfig
	case strings.HasPrefix(path, "/var/lib/kube-proxy/"):
		c.notef("clientConnection.kubeconfig", "%s is in kube-proxy's pod: make a kubeconfig, as %s", path, ownKubeconfig)
		path = ownKubeconfig
	}
	c.out.Source.Kube.Kubeconfig = path
}

func (c *converter) node() {
	c.out.Node.Name = strings.ToLower(strings.TrimSpace(take(&c.in.HostnameOverride)))
	text := take(&c.in.BindAddress)
	addr, err := netip.ParseAddr(text)
	switch {
	case text == "" || err == nil && addr.IsUnspecified():
	case err != nil || addr.Is4In6() || addr.Zone() != "" || addr.IsLoopback() || addr.IsMulticast():
		c.notef("bindAddress", "%q cannot be an address of this host in the cluster, and is left out", text)
	default:
		c.out.Node.Addresses = []netip.Addr{addr}
	}
}

func (c *converter) servers() {
	for _, s := range []struct {
		setting, text, port string
		address             *string
	}{
		{"healthzBindAddress", take(&c.in.HealthzBindAddress), "10256", &c.out.Health.Address},
		{"metricsBindAddress", take(&c.in.MetricsBindAddress), "10249", &c.out.Metrics.Address},
	} {
		if s.text == "" {
			continue
		}
		address, err := listenAddress(s.text, s.port)
		if err != nil {
			c.notef(s.setting, "%q is left out: %s", s.text, err)
			continue
		}
		*s.address = address
	}
	c.out.Metrics.Pprof = take(&c.in.EnableProfiling)
}

// listenAddress adds the port where there is none, and leaves out the address of all addresses.
func listenAddress(text, port string) (string, error) {
	host := strings.Trim(text, "[]")
	if _, err := netip.ParseAddr(host); err != nil {
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", err
		}
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case host != "" && err != nil:
		return "", errHost
	case err == nil && addr.IsUnspecified():
		host = ""
	}
	return net.JoinHostPort(host, port), nil
}

// mode takes the section of the mode. IPVS has the marks of the section of iptables.
func (c *converter) mode() {
	mode := take(&c.in.Mode)
	used, name := &c.in.IPTables, "iptables."
	if c.newest = mode == c.out.Proxy.Backend; c.newest { // with a section of its own
		used, name = &c.in.NFTables, mode+"."
	}
	switch own := c.out.Proxy.Backend; {
	case mode == "":
		c.notef("mode", "kube-proxy's default is iptables, Edgeway's %s, which is recommended", own)
	case c.hasBackend(mode):
		c.out.Proxy.Backend = mode
	default:
		c.notef("mode", "there is no backend %q: %s is used", mode, own)
	}
	if bit := take(&used.MasqueradeBit); bit != nil {
		c.out.Proxy.MasqueradeBit = int(*bit)
	}
	c.out.Proxy.MasqueradeAll = take(&used.MasqueradeAll)
	switch period := take(&used.MinSyncPeriod).Duration; {
	case period == 0:
		c.notef(name+"minSyncPeriod", "kube-proxy's default is 1s, Edgeway's proxy.min_sync_period %s: a sync of few changes costs little", c.out.Proxy.MinSyncPeriod)
	case period < 0 || period > time.Minute:
		c.notef(name+"minSyncPeriod", "%s is left out: proxy.min_sync_period is one minute at most", period)
	default:
		c.out.Proxy.MinSyncPeriod = period
	}
}

func (c *converter) detection() {
	cidrs := c.in.ClusterCIDR
	p := &c.out.Proxy
	switch mode := take(&c.in.DetectLocalMode); mode {
	case "", "ClusterCIDR":
		c.in.ClusterCIDR = ""
		if p.ClusterCIDRs = c.prefixes("clusterCIDR", strings.Split(cidrs, ",")); len(p.ClusterCIDRs) > 0 {
			p.LocalDetection = config.DetectClusterCIDR
		}
	case "NodeCIDR":
		p.LocalDetection = config.DetectNodeCIDR
	case "BridgeInterface":
		p.LocalDetection, p.BridgeInterface = config.DetectBridge, take(&c.in.DetectLocal.BridgeInterface)
	case "InterfaceNamePrefix":
		p.LocalDetection, p.InterfaceNamePrefix = config.DetectPrefix, take(&c.in.DetectLocal.InterfaceNamePrefix)
	default:
		c.notef("detectLocalMode", "%q is unknown and is left out", mode)
	}
	if p.LocalDetection != config.DetectNone {
		c.notef("detectLocalMode", "it is about pods that run on this host: if there are none, leave out proxy.local_detection and what belongs to it")
	}
}

// prefixes reads ranges, as kube-proxy does with bits beyond their length.
func (c *converter) prefixes(setting string, texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		switch {
		case text == "":
		case err != nil || p.Addr().Is4In6():
			c.notef(setting, "%q is no range of addresses and is left out", text)
		case !slices.Contains(out, p.Masked()):
			out = append(out, p.Masked())
		}
	}
	return out
}

func (c *converter) nodePorts() {
	p := &c.out.Proxy.NodePortAddresses
	texts := take(&c.in.NodePortAddresses)
	switch {
	case len(texts) == 0 && !c.newest:
		c.notef("nodePortAddresses", `kube-proxy's default is all addresses, Edgeway's "primary": proxy.nodeport_addresses = ["all"] for all`)
	case len(texts) > 0:
		*p = config.NodePortAddresses{}
		rest := slices.DeleteFunc(slices.Clone(texts), func(s string) bool {
			word := map[string]*bool{"primary": &p.Primary, "localhost": &p.Localhost, "all": &p.All}[s]
			if word != nil {
				*word = true
			}
			return word != nil
		})
		p.Prefixes = c.prefixes("nodePortAddresses", rest)
	}
	switch local := take(&c.in.IPTables.LocalhostNodePorts); {
	case c.newest: // it has no effect there
	case local == nil:
		c.notef("iptables.localhostNodePorts", `kube-proxy's default is true, Edgeway serves no NodePorts on 127.0.0.1: add "localhost" to proxy.nodeport_addresses for them`)
	case *local:
		p.Localhost = true
	}
}

func (c *converter) conntrack() {
	in, out := &c.in.Conntrack, &c.out.Conntrack
	if n := take(&in.MaxPerCore); n != nil {
		out.MaxPerCore = int(*n)
	}
	if n := take(&in.Min); n != nil {
		out.Min = int(*n)
	}
	out.TCPBeLiberal = take(&in.TCPBeLiberal)
	out.UDPTimeout = c.wholeSeconds("conntrack.udpTimeout", take(&in.UDPTimeout).Duration)
	out.UDPStreamTimeout = c.wholeSeconds("conntrack.udpStreamTimeout", take(&in.UDPStreamTimeout).Duration)
	for _, t := range []struct {
		setting, key, usual string
		in                  *metav1.Duration
		out                 *time.Duration
	}{
		{"conntrack.tcpEstablishedTimeout", "conntrack.tcp_established_timeout", "24h", take(&in.TCPEstablishedTimeout), &out.TCPEstablishedTimeout},
		{"conntrack.tcpCloseWaitTimeout", "conntrack.tcp_close_wait_timeout", "1h", take(&in.TCPCloseWaitTimeout), &out.TCPCloseWaitTimeout},
	} {
		if t.in == nil {
			c.notef(t.setting, "kube-proxy's default is %s, Edgeway leaves the kernel's setting alone: %s = %q for the same", t.usual, t.key, t.usual)
			continue
		}
		*t.out = c.wholeSeconds(t.setting, t.in.Duration)
	}
}

// wholeSeconds is what the kernel takes.
func (c *converter) wholeSeconds(setting string, d time.Duration) time.Duration {
	const most = 30 * 24 * time.Hour
	if d < 0 || d > most {
		c.notef(setting, "%s is left out: it must be 0s to %s", d, most)
		return 0
	}
	if d%time.Second != 0 {
		c.notef(setting, "%s is rounded up: the kernel counts seconds", d)
		d = d.Truncate(time.Second) + time.Second
	}
	return d
}

func (c *converter) gates() {
	const external = "AllowServiceExternalIPs"
	if on, set := c.in.FeatureGates[external]; set && !on {
		c.out.Proxy.AllowExternalIPs = config.ExternalIPs{}
	}
	delete(c.in.FeatureGates, external)
	for _, gate := range slices.Sorted(maps.Keys(take(&c.in.FeatureGates))) {
		c.notef("featureGates."+gate, "%s", reason("featureGates"))
	}
}

func (c *converter) logging() {
	in := &c.in.Logging
	switch format := take(&in.Format); format {
	case "":
	case "text", "json":
		c.out.Log.Format = format
	default:
		c.notef("logging.format", "%q is left out: log.format is text or json", format)
	}
	const debug = 4 // the convention of klog: from there on it is for who debugs
	if v := take(&in.Verbosity); v >= debug {
		c.notef("logging.verbosity", "%d becomes log.level = \"debug\"", v)
		_ = c.out.Log.Level.UnmarshalText([]byte("debug")) // it is a level
	}
}

// ignoreDefaults empties the fields without a counterpart that have kube-proxy's default, as kubeadm writes them.
func (c *converter) ignoreDefaults() {
	client := &c.in.ClientConnection
	ignore(&client.ContentType, "application/vnd.kubernetes.protobuf")
	ignore(&client.QPS, 5)
	ignore(&client.Burst, 10)
	ignore(&c.in.ConfigSyncPeriod.Duration, 15*time.Minute)
	for _, r := range []*rules{&c.in.IPTables, &c.in.NFTables} {
		ignore(&r.SyncPeriod.Duration, 30*time.Second)
		ignore(&r.MinSyncPeriod.Duration, time.Second)
		if r.MasqueradeBit != nil && *r.MasqueradeBit == 14 {
			r.MasqueradeBit = nil
		}
	}
	ignore(&c.in.IPVS.SyncPeriod.Duration, 30*time.Second)
	if f := c.in.Logging.FlushFrequency; f == "5s" || f == int64(5*time.Second) {
		c.in.Logging.FlushFrequency = nil
	}
	if c.in.OOMScoreAdj == nil {
		c.notef("oomScoreAdj", "kube-proxy's default is -999, that of edgeway.service OOMScoreAdjust=-250")
	}
}

func ignore[T comparable](field *T, usual T) {
	if *field == usual {
		*field = *new(T)
	}
}
