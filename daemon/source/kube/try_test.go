package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestTryReportsAnswerClockAndRefusal(t *testing.T) {
	t.Parallel()
	code, asked := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		if strings.HasSuffix(r.URL.Path, serviceCIDRs) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		asked = r.URL.String()
		w.WriteHeader(code)
	}))
	o := Options{Kubeconfig: kubeconfig(t, server.URL, ""), Logger: slog.New(slog.DiscardHandler)}
	c, err := Try(t.Context(), o)
	if err != nil || c.Server != server.URL || c.Latency <= 0 || asked != "/api/v1/services?limit=1" {
		t.Errorf("%+v %v, asked for %s", c, err, asked)
	}
	if len(c.Faults) != 1 || c.Faults[0].ID != RangesID || !strings.HasPrefix(c.Faults[0].Fix, "kubectl apply -f ") {
		t.Errorf("ServiceCIDRs are forbidden: %+v", c.Faults)
	}
	if off := c.ClockSkew - time.Hour; !c.SkewKnown || off < -3*time.Second || off > 3*time.Second {
		t.Errorf("the clock is said to be %s ahead, want an hour", c.ClockSkew)
	}
	code, o.Namespaces = http.StatusForbidden, []string{"shop"}
	c, err = Try(t.Context(), o)
	if err != nil || !strings.Contains(c.Fault.Message, "403") || !c.SkewKnown ||
		asked != "/api/v1/namespaces/shop/services?limit=1" || !strings.HasPrefix(c.Fault.Fix, "kubectl apply -f ") {
		t.Errorf("refused: %+v %v, asked for %s", c, err, asked)
	}
	code = http.StatusUnauthorized
	if c, err = Try(t.Context(), o); err != nil || !strings.Contains(c.Fault.Message, "401") ||
		!strings.Contains(c.Fault.Fix, "kubectl -n kube-system create token") {
		t.Errorf("not known: %+v %v", c, err)
	}
	server.Close()
	if c, err = Try(t.Context(), o); err != nil || !strings.Contains(c.Fault.Message, "connection refused") ||
		c.SkewKnown || !strings.HasPrefix(c.Fault.Fix, "ip route get 127.0.0.1 ") {
		t.Errorf("nobody there: %+v %v", c, err)
	}
}

// The fix depends on the cause of the failure. The test does not cover errors in the kubeconfig, because "edgeway
// config check" reports them.
func TestTryAdvice(t *testing.T) {
	t.Parallel()
	tlsServer, plain := httptest.NewTLSServer(http.NotFoundHandler()), httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(tlsServer.Close)
	t.Cleanup(plain.Close)
	for server, want := range map[string]string{
		tlsServer.URL: "kube-root-ca.crt",
		strings.Replace(plain.URL, "http:", "https:", 1): "does not use TLS",
		"https://no-such-name.invalid:6443":              "getent hosts no-such-name.invalid ",
		"https://kubernetes.default.svc:6443":            "kubectl config view --minify ",
	} {
		o := Options{Kubeconfig: kubeconfig(t, server, ""), Logger: slog.New(slog.DiscardHandler)}
		if c, err := Try(t.Context(), o); err != nil || !strings.Contains(c.Fault.Fix, want) {
			t.Errorf("%s: %v; advised %q, want %q", server, err, c.Fault.Fix, want)
		}
	}
	for want, err := range map[string]error{
		"timedatectl set-ntp true": x509.CertificateInvalidError{Reason: x509.Expired},
		"name or address":          &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}},
		"ip route get 192.0.2.1 ":  context.DeadlineExceeded,
	} {
		if got := remedy(err, "https://192.0.2.1:6443", "/k"); !strings.Contains(got, want) {
			t.Errorf("%v: advised %q, want %q", err, got, want)
		}
	}
	now := time.Now()
	for credential, want := range map[string]string{
		credentialToken: "create token", credentialCA: "kube-root-ca.crt", credentialCertificate: "--client-certificate",
	} {
		got := expiryFaults(map[string]Expiry{credential: {Until: now}}, "/k", now)
		if len(got) != 1 || !strings.Contains(got[0].Fix, want) || !strings.Contains(got[0].Fix, "/k") {
			t.Errorf("%s expires: %+v, want the fix %q", credential, got, want)
		}
	}
}
