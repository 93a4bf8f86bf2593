package lastknown

import (
	"errors"
	"net/url"
	"slices"
)

// Cluster identifies a cluster by what a kubeconfig says of it: nothing more is known at a boot without the API server.
type Cluster struct {
	Server string `json:"server,omitempty"` // the URL of the API server
	// CAs are the SHA-256 of the certificates of the cluster's authorities. They are empty if the host's own count.
	CAs []string `json:"cas,omitempty"`
}

// errOther is the fault of state that belongs to another cluster.
var errOther = errors.New("the state is of another API server")

// same reports whether both are one cluster: the server has the same URL, or another name or port and one of its
// authorities. Proxies such as Rancher's serve many clusters with one certificate and name the cluster in the path.
func (c Cluster) same(o Cluster) bool {
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
	return u.JoinPath("/").Path // with or without a slash at the end
}
