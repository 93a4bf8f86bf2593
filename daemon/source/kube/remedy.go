package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// FaultID is the ID of the fault in a Source's Status.
const FaultID = "source-kube"

// failure describes why a feed's request failed. The zero failure means that no request failed.
type failure struct {
	fault.Fault
	// refused reports whether the failure is an error response from the API server.
	refused   bool
	forbidden bool
}

func newFailure(server, what string, err error, kubeconfig string) failure {
	var status apierrors.APIStatus
	f := failure{
		Fault:   fault.New(FaultID, fault.Warning, remedy(err, server, kubeconfig), "%s", describe(server, what, err)),
		refused: errors.As(err, &status), forbidden: apierrors.IsForbidden(err),
	}
	if host := hostOf(server); !f.refused && isServiceName(host) {
		f.Message += ": the server's host name belongs to a Service and does not resolve outside the cluster"
		f.Fix = fmt.Sprintf(fixAddress, kubeconfig)
	}
	return f
}

// An operator must run the kubectl commands on a host where kubectl has the necessary permissions.
const (
	fixToken = "kubectl -n kube-system create token edgeway --duration=720h  # run where kubectl " +
		"has the required permissions, then put the output into %s as the token"
	fixAuthority = "kubectl -n kube-system get configmap kube-root-ca.crt -o " +
		"'jsonpath={.data.ca\\.crt}' | base64 -w0  # run where kubectl has the required permissions, " +
		"then put the output into %s as certificate-authority-data"
	fixRights = "kubectl apply -f /usr/share/edgeway/examples/kubernetes-access.yaml  # run where kubectl " +
		"has the required permissions; grants permissions to the service account edgeway"
	fixAddress = "kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}'  # run where kubectl " +
		"works, then put the output into %s as the server"
	fixClock = "timedatectl set-ntp true  " +
		"# if the clock is correct, the API server or a CA in %s needs a new certificate"
)

func remedy(err error, server, kubeconfig string) string {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf(fixToken, kubeconfig)
	case apierrors.IsForbidden(err):
		return fixRights
	case errors.As(err, &status):
		return "check the logs of the API server and of any load balancer in front of it"
	}
	if fix := remedyTLS(err, kubeconfig); fix != "" {
		return fix
	}
	host := hostOf(server)
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("getent hosts %s  # if there is no output, correct this host's DNS, "+
			"or use an IP address as the server in %s", host, kubeconfig)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("ip route get %s  # shows the route: either no program listens on port %d at "+
			"the destination, or a firewall rejects the connection; if the address is wrong, correct the server in %s",
			host, (&source.APIServer{Name: server}).Port(), kubeconfig)
	}
	return fmt.Sprintf("ip route get %s  # shows the route: check for a firewall on the path; or "+
		"correct the server in %s", host, kubeconfig)
}

// isServiceName reports whether host is the DNS name of a cluster Service.
func isServiceName(host string) bool {
	return strings.HasPrefix(host+".", "kubernetes.default.") || strings.HasSuffix(host, ".svc") ||
		strings.HasSuffix(host, ".svc.cluster.local")
}

// remedyTLS returns the fix for an untrusted connection, or "" for any other error.
func remedyTLS(err error, kubeconfig string) string {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		name      x509.HostnameError
		plain     tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority):
		return fmt.Sprintf(fixAuthority, kubeconfig)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf(fixClock, kubeconfig)
	case errors.As(err, &name):
		return "set the server in " + kubeconfig + " to a name or address from the server's certificate"
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return "set the server in " + kubeconfig + " to the address of the API server itself: " +
			"the server at the current address does not use TLS"
	}
	return ""
}

func hostOf(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // client-go has already parsed the URL, so this cannot happen
	}
	return u.Hostname()
}
