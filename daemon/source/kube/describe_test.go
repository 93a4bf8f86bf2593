package kube

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Edgeway reduces text from a certificate or a response to one line without terminal control characters.
func TestFaultTextHasNoControlCharacters(t *testing.T) {
	const hostile = "\x1b[2J\u009b2J\u202e\nforged"
	for name, err := range map[string]error{
		"certificate": &url.Error{Op: "Get", URL: "https://x", Err: x509.HostnameError{
			Certificate: &x509.Certificate{DNSNames: []string{hostile}}, Host: "api.example",
		}},
		"answer": &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: hostile}},
		"other":  errors.New(hostile),
	} {
		got := describe("https://x", "list services", err)
		if !strings.Contains(got, `\u001b[2J\u009b2J\u202e forged`) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
