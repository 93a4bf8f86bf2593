package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
)

// CAs returns the SHA-256 fingerprint of each CA certificate in the kubeconfig. The fingerprints identify the cluster
// even after the API server's URL changes. The result is empty if the host's own CAs verify the API server.
func (s *Source) CAs() []string { return s.client.Load().cas }

func fingerprints(bundle []byte) (out []string) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		sum := sha256.Sum256(block.Bytes)
		out = append(out, hex.EncodeToString(sum[:]))
	}
	return out
}
