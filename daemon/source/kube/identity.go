package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
)

// Cluster identifies the cluster whose API server listed the source's objects or, before the first list, the cluster in
// the kubeconfig. Cluster returns the API server's URL and the SHA-256 of each CA certificate in the kubeconfig. The
// hashes of the CA certificates identify the cluster even after the API server's URL changes. cas is empty if the
// host's own CAs verify the API server.
func (s *Source) Cluster() (server string, cas []string) {
	c := cmp.Or(s.listed.Load(), s.client.Load())
	return c.host, c.cas
}

func fingerprints(bundle []byte) (out []string) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		sum := sha256.Sum256(block.Bytes)
		out = append(out, hex.EncodeToString(sum[:]))
	}
	return out
}
