package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os/exec"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"edgeway/daemon/regular"
)

// loadKubeconfig reads the current context of the file at path. It opens everything that the file
// refers to, so that a fault is found now and named, not at some later request.
func loadKubeconfig(path string, allowExec bool) (*rest.Config, error) {
	if path == "" {
		return nil, errors.New("kubeconfig: no path given")
	}
	data, err := regular.Read(path, regular.Small)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: it does not parse: %w", path, err)
	}
	// Relative paths in the file are relative to the file.
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := checkKubeconfig(config, allowExec); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	out, err := clientcmd.NewNonInteractiveClientConfig(*config, config.CurrentContext, nil, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return out, nil
}

func checkKubeconfig(config *api.Config, allowExec bool) error {
	if config.CurrentContext == "" {
		return errors.New("current-context: it is missing or empty")
	}
	context, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return fmt.Errorf("current-context: contexts has no %q", config.CurrentContext)
	}
	cluster, ok := config.Clusters[context.Cluster]
	if !ok {
		return fmt.Errorf("contexts[%s].context.cluster: clusters has no %q", config.CurrentContext, context.Cluster)
	}
	at := fmt.Sprintf("clusters[%s].cluster", context.Cluster)
	if cluster.Server == "" {
		return fmt.Errorf("%s.server: it is missing or empty", at)
	}
	if _, _, err := rest.DefaultServerURL(cluster.Server, "", schema.GroupVersion{}, true); err != nil {
		return fmt.Errorf("%s.server: %w", at, err)
	}
	if err := checkAuthority(at, cluster); err != nil {
		return err
	}
	if context.AuthInfo == "" {
		return nil
	}
	user, ok := config.AuthInfos[context.AuthInfo]
	if !ok {
		return fmt.Errorf("contexts[%s].context.user: users has no %q", config.CurrentContext, context.AuthInfo)
	}
	at = fmt.Sprintf("users[%s].user", context.AuthInfo)
	if err := checkPlugins(at, user, allowExec); err != nil {
		return err
	}
	return checkCredentials(at, user)
}

func checkAuthority(at string, cluster *api.Cluster) error {
	pem, field, err := fileOrData(cluster.CertificateAuthority, cluster.CertificateAuthorityData, "certificate-authority")
	if err != nil {
		return fmt.Errorf("%s.%s: %w", at, field, err)
	}
	if len(pem) > 0 && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s.%s: it holds no certificate that can be read", at, field)
	}
	return nil
}

func checkPlugins(at string, user *api.AuthInfo, allowExec bool) error {
	if user.AuthProvider != nil {
		return fmt.Errorf("%s.auth-provider: %q is not supported: client-go has no such providers any more; use a token, a certificate or an exec plugin", at, user.AuthProvider.Name)
	}
	if user.Exec == nil {
		return nil
	}
	if !allowExec {
		return fmt.Errorf("%s.exec: it would run %q; exec plugins have to be allowed, by source.kube.allow_exec_plugins", at, user.Exec.Command)
	}
	if _, err := exec.LookPath(user.Exec.Command); err != nil {
		return fmt.Errorf("%s.exec.command: %w", at, err)
	}
	return nil
}

func checkCredentials(at string, user *api.AuthInfo) error {
	if user.TokenFile != "" {
		if _, err := regular.Read(user.TokenFile, regular.Small); err != nil {
			return fmt.Errorf("%s.tokenFile: %w", at, err)
		}
	}
	cert, certField, err := fileOrData(user.ClientCertificate, user.ClientCertificateData, "client-certificate")
	if err != nil {
		return fmt.Errorf("%s.%s: %w", at, certField, err)
	}
	key, keyField, err := fileOrData(user.ClientKey, user.ClientKeyData, "client-key")
	if err != nil {
		return fmt.Errorf("%s.%s: %w", at, keyField, err)
	}
	if len(cert) == 0 && len(key) == 0 {
		return nil
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("%s.%s and %s: %w", at, certField, keyField, err)
	}
	return nil
}

// fileOrData gives the content of one of the kubeconfig's pairs of fields "name" (a path) and
// "name-data", and the field that it comes from. The data wins over the path, as in client-go.
func fileOrData(path string, data []byte, name string) (content []byte, field string, err error) {
	if len(data) > 0 {
		return data, name + "-data", nil
	}
	if path == "" {
		return nil, name, nil
	}
	content, err = regular.Read(path, regular.Small)
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return content, name, err
}
