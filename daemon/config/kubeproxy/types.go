package kubeproxy

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// configuration is a KubeProxyConfiguration, v1alpha1, with the fields of Kubernetes 1.36. Its own types
// (k8s.io/kube-proxy) need component-base and all that this links. A pointer tells 0 from nothing.
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	FeatureGates     map[string]bool `json:"featureGates"`
	ClientConnection struct {
		Kubeconfig         string  `json:"kubeconfig"`
		AcceptContentTypes string  `json:"acceptContentTypes"`
		ContentType        string  `json:"contentType"`
		QPS                float32 `json:"qps"`
		Burst              int32   `json:"burst"`
	} `json:"clientConnection"`
	Logging struct {
		Format         string `json:"format"`
		FlushFrequency any    `json:"flushFrequency"`
		Verbosity      uint32 `json:"verbosity"`
		VModule        any    `json:"vmodule"`
		Options        any    `json:"options"`
	} `json:"logging"`

	HostnameOverride            string `json:"hostnameOverride"`
	BindAddress                 string `json:"bindAddress"`
	HealthzBindAddress          string `json:"healthzBindAddress"`
	MetricsBindAddress          string `json:"metricsBindAddress"`
	BindAddressHardFail         bool   `json:"bindAddressHardFail"`
	EnableProfiling             bool   `json:"enableProfiling"`
	ShowHiddenMetricsForVersion string `json:"showHiddenMetricsForVersion"`

	Mode     string `json:"mode"`
	IPTables rules  `json:"iptables"`
	NFTables rules  `json:"nftables"`
	IPVS     struct {
		SyncPeriod    metav1.Duration `json:"syncPeriod"`
		MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
		Scheduler     string          `json:"scheduler"`
		ExcludeCIDRs  []string        `json:"excludeCIDRs"`
		StrictARP     bool            `json:"strictARP"`
		TCPTimeout    metav1.Duration `json:"tcpTimeout"`
		TCPFinTimeout metav1.Duration `json:"tcpFinTimeout"`
		UDPTimeout    metav1.Duration `json:"udpTimeout"`
	} `json:"ipvs"`
	Winkernel struct {
		NetworkName           string `json:"networkName"`
		SourceVip             string `json:"sourceVip"`
		EnableDSR             bool   `json:"enableDSR"`
		RootHnsEndpointName   string `json:"rootHnsEndpointName"`
		ForwardHealthCheckVip bool   `json:"forwardHealthCheckVip"`
	} `json:"winkernel"`

	DetectLocalMode string `json:"detectLocalMode"`
	DetectLocal     struct {
		BridgeInterface     string `json:"bridgeInterface"`
		InterfaceNamePrefix string `json:"interfaceNamePrefix"`
	} `json:"detectLocal"`
	ClusterCIDR       string   `json:"clusterCIDR"`
	NodePortAddresses []string `json:"nodePortAddresses"`

	OOMScoreAdj *int32 `json:"oomScoreAdj"`
	Conntrack   struct {
		MaxPerCore            *int32           `json:"maxPerCore"`
		Min                   *int32           `json:"min"`
		TCPEstablishedTimeout *metav1.Duration `json:"tcpEstablishedTimeout"`
		TCPCloseWaitTimeout   *metav1.Duration `json:"tcpCloseWaitTimeout"`
		TCPBeLiberal          bool             `json:"tcpBeLiberal"`
		UDPTimeout            metav1.Duration  `json:"udpTimeout"`
		UDPStreamTimeout      metav1.Duration  `json:"udpStreamTimeout"`
	} `json:"conntrack"`
	ConfigSyncPeriod    metav1.Duration `json:"configSyncPeriod"`
	PortRange           string          `json:"portRange"`
	WindowsRunAsService bool            `json:"windowsRunAsService"`
}

// rules is the section of one mode. Only that of iptables has LocalhostNodePorts.
type rules struct {
	MasqueradeBit      *int32          `json:"masqueradeBit"`
	MasqueradeAll      bool            `json:"masqueradeAll"`
	LocalhostNodePorts *bool           `json:"localhostNodePorts"`
	SyncPeriod         metav1.Duration `json:"syncPeriod"`
	MinSyncPeriod      metav1.Duration `json:"minSyncPeriod"`
}
