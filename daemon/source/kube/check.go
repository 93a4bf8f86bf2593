package kube

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"edgeway/proxiers/fault"
)

// CheckOptions say what to check.
type CheckOptions struct {
	Kubeconfig       string
	AllowExecPlugins bool
	// ServiceCIDRs are the ranges of ClusterIPs that are known.
	ServiceCIDRs []netip.Prefix
}

// Check finds what is dangerous about a kubeconfig that a Source would take, and with what the API server can hardly be
// used. The error is why a Source would not take it; see Advice.
func Check(o CheckOptions) ([]fault.Fault, error) {
	warnings, err := Warnings(o.Kubeconfig, o.AllowExecPlugins)
	if err != nil {
		return nil, err
	}
	c := checker{path: o.Kubeconfig, found: warnings}
	a, err := loadKubeconfig(o.Kubeconfig, o.AllowExecPlugins)
	if err != nil {
		return nil, err
	}
	c.checkServer(a, o.ServiceCIDRs)
	c.checkUser(a)
	return c.found, nil
}

// Files gives the kubeconfig and the files that it names, as far as it can be read.
func Files(kubeconfig string, allowExec bool) (out []string) {
	a, _ := loadKubeconfig(kubeconfig, allowExec) // its fault is Check's
	for _, f := range a.files {
		out = append(out, f.path)
	}
	return out
}

type checker struct {
	path  string
	found []fault.Fault
}

func (c *checker) warn(fix, format string, args ...any) {
	c.found = append(c.found, fault.New("kubeconfig", fault.Warning, fix, format, args...).Of(kubeconfigObject(c.path)))
}

func (c *checker) fail(fix, format string, args ...any) {
	c.warn(fix, format, args...)
	c.found[len(c.found)-1].Severity = fault.Problem
}

// checkServer finds servers that cannot be reached from a host that is no Node, or not be verified.
func (c *checker) checkServer(a *access, serviceCIDRs []netip.Prefix) {
	server, err := url.Parse(a.config.Host)
	if err != nil {
		return // a Source has taken it
	}
	const other = "write the address of a control-plane host, or of its load balancer"
	name := server.Hostname()
	addr, err := netip.ParseAddr(name)
	switch {
	case err == nil && slices.ContainsFunc(serviceCIDRs, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) }):
		c.fail(other, "server: %s is a ClusterIP, which nothing leads to before the Services are known", a.config.Host)
	case err == nil && addr.Unmap().IsLoopback(), name == "localhost":
		c.warn(other+", unless a proxy to it listens here",
			"server: %s is this host itself, as in the kubeconfig of a control-plane host", a.config.Host)
	case strings.HasSuffix(name, ".svc"), strings.HasSuffix(name, ".cluster.local"):
		c.fail(other, "server: %s is a name of the cluster's own DNS, which a ClusterIP serves", a.config.Host)
	}
	if server.Scheme == "https" && len(a.config.CAData) == 0 && !a.config.Insecure {
		c.warn("run: kubectl config set-cluster NAME --certificate-authority=ca.crt --embed-certs --kubeconfig "+c.path,
			"certificate-authority: it is missing, so the API server needs a certificate of an authority that this host trusts")
	}
}

// checkUser finds credentials that no API server takes.
func (c *checker) checkUser(a *access) {
	const again = "run: kubectl config set-credentials NAME --token=TOKEN --kubeconfig "
	token := a.config.BearerToken
	decoded, err := base64.StdEncoding.DecodeString(token)
	switch {
	case err == nil && strings.HasPrefix(string(decoded), "eyJ") && strings.Count(string(decoded), ".") == 2:
		c.fail("decode it, as \"base64 -d\" does, and "+again+c.path, "token: it is in base64, as a Secret has it")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\'' }):
		c.fail(again+c.path, "token: it has white space, quotes or other characters that no token has")
	case rest.IsConfigTransportTLS(*a.config) && token == "" && len(a.config.CertData) == 0 &&
		a.config.ExecProvider == nil && a.config.Username == "":
		c.warn(again+c.path, "users: the current context has no credentials, so the API server sees an anonymous user, who may mostly read nothing")
	}
}
