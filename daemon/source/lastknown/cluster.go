package lastknown

import (
	"errors"
	"net/url"
	"slices"
)

// Cluster identifies a cluster by kubeconfig data, because the kubeconfig is available even if the API server is
// unreachable.
type Cluster struct {
	Server string `json:"server,omitempty"` // the URL of the API server
	// CAs lists the SHA-256 hashes of the cluster's CA certificates. CAs is empty if the host's own CAs verify the API
	// server's certificate.
	CAs []string `json:"cas,omitempty"`
}

var errOther = errors.New("the state belongs to another API server")

// matches reports whether c and o identify the same cluster. Two Clusters match if their URLs are equal, or if their
// URL paths are equal and they share a CA. Proxies such as Rancher's use one certificate for many clusters and identify
// each cluster by its path.
func (c Cluster) matches(o Cluster) bool {
	if c.Server == o.Server {
		return true
	}
	return slices.ContainsFunc(c.CAs, func(ca string) bool { return slices.Contains(o.CAs, ca) }) &&
		pathOf(c.Server) == pathOf(o.Server)
}

func pathOf(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	return u.JoinPath("/").Path // without a trailing slash
}
