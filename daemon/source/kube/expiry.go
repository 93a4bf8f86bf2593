package kube

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"edgeway/proxiers/fault"
)

// The metric label "credential" has these values, one for each credential that may expire.
const (
	credentialCA          = "ca"
	credentialCertificate = "client-certificate"
	credentialToken       = "token"
)

// Expiry is the validity period of a credential.
type Expiry struct {
	From  time.Time // zero if unknown
	Until time.Time
}

// Because operators replace long-lived credentials by hand, Edgeway warns a week before a long-lived credential
// expires. Edgeway assumes that programs replace credentials that are valid for two weeks or less. The kubelet replaces
// a credential after four fifths of its validity period.
const (
	warnBefore = 7 * 24 * time.Hour
	longLife   = 2 * warnBefore
)

func (e Expiry) due() time.Time {
	if life := e.Until.Sub(e.From); !e.From.IsZero() && life <= longLife {
		return e.Until.Add(-life / 10)
	}
	return e.Until.Add(-warnBefore)
}

// expiryFaults returns a Warning for each credential that expires soon, and a Problem for each expired credential.
func expiryFaults(expiries map[string]Expiry, kubeconfig string, now time.Time) (out []fault.Fault) {
	for _, name := range slices.Sorted(maps.Keys(expiries)) {
		e := expiries[name]
		if now.Before(e.due()) {
			continue
		}
		severity, verb := fault.Warning, "expires at"
		if now.After(e.Until) {
			severity, verb = fault.Problem, "expired at"
		}
		out = append(out, fault.New(expiryID, severity, fmt.Sprintf(renewalCommands[name], kubeconfig), "%s %s %s",
			credentialName(name), verb, e.Until.UTC().Format(time.RFC3339)).WithName(kubeconfigObject(kubeconfig)))
	}
	return out
}

// renewalCommands maps each credential to the command that replaces it, with a placeholder for the kubeconfig.
var renewalCommands = map[string]string{
	credentialCA: fixAuthority,
	credentialCertificate: "kubectl config set-credentials NAME --client-certificate=new.crt --client-key=new.key " +
		"--embed-certs --kubeconfig %s",
	credentialToken: fixToken,
}

func credentialName(credential string) string {
	switch credential {
	case credentialCA:
		return "The API server's CA certificate"
	case credentialCertificate:
		return "The client certificate"
	}
	return "The token"
}

// authorityExpiry returns the validity period of the CA certificate that expires last. The kubeconfig contains two CA
// certificates while an operator replaces the CA.
func authorityExpiry(raw []byte) (out Expiry) {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.NotAfter.After(out.Until) {
			out = Expiry{cert.NotBefore, cert.NotAfter}
		}
	}
	return out
}

// tokenExpiry returns the validity period in the claims of a JWT (RFC 7519). tokenExpiry ignores the signature, because
// only the API server can verify it. ok is false for a token that is not a JWT or does not expire.
func tokenExpiry(token string) (e Expiry, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return e, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return e, false
	}
	var claims struct{ Exp, Iat float64 }
	const year10k = 253402300800 // time.RFC3339 cannot represent later dates
	if json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 || claims.Exp >= year10k {
		return e, false
	}
	e.Until = time.Unix(int64(claims.Exp), 0)
	if claims.Iat > 0 && claims.Iat < claims.Exp {
		e.From = time.Unix(int64(claims.Iat), 0)
	}
	return e, true
}
