package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
)

// CAs returns the SHA-256 of each certificate of the kubeconfig's certificate authority. The fingerprints identify the
// cluster even after a change of the API server's URL. The result is empty if the host's own authorities verify the API
// server.
func (s *Source) CAs() []string { return s.client.Load().cas }

func fingerprints(bundle []byte) (out []string) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		sum := sha256.Sum256(block.Bytes)
		out = append(out, hex.EncodeToString(sum[:]))
	}
	return out
}
