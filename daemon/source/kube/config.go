package kube

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"edgeway/daemon/files"
	"edgeway/proxiers/fault"
)

// access holds the API server's address and the client's credentials, as read from a kubeconfig and the files that it
// names.
type access struct {
	// config contains the content of the files instead of their paths, so that Edgeway uses exactly the content that it
	// has validated. The only exception is the token file, for which config contains the path.
	config *rest.Config
	files  []file // all files that were read, the kubeconfig first
	// digest is the checksum of the kubeconfig and the files that it names, except the token file, which client-go
	// reads itself.
	digest   [sha256.Size]byte
	expiries map[string]Expiry // keyed by credential
	insecure []fault.Fault     // the security faults of the kubeconfig
}

type file struct {
	path   string
	info   os.FileInfo
	secret bool
}

type reader struct {
	files  []file
	digest []byte
}

func (r *reader) read(path string, secret bool) ([]byte, error) {
	raw, err := files.Read(path, files.SmallLimit)
	if err != nil {
		r.files = append(r.files, file{path: path})
		return nil, err
	}
	info, err := os.Stat(path)
	r.files = append(r.files, file{path, info, secret})
	sum := sha256.Sum256(raw)
	r.digest = append(r.digest, sum[:]...)
	return raw, err
}

// loadKubeconfig reads the current context of a kubeconfig and all files that the context names, so that Edgeway finds
// faults immediately instead of during a later request. If loadKubeconfig fails, the returned access still lists the
// files.
func loadKubeconfig(path string, allowExec bool) (*access, error) {
	r := &reader{}
	out, err := r.load(path, allowExec)
	out.files, out.digest = r.files, sha256.Sum256(r.digest)
	return out, err
}

func (r *reader) load(path string, allowExec bool) (*access, error) {
	out := &access{expiries: map[string]Expiry{}}
	if path == "" {
		return out, errors.New("kubeconfig: no path given")
	}
	raw, err := r.read(path, false)
	if err != nil {
		return out, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		fix := `correct the kubeconfig, or write a new one with "kubectl config"`
		if _, ok := errors.AsType[base64.CorruptInputError](err); ok {
			fix = "a field whose name ends in -data must contain base64: encode the file with base64 -w0, " +
				"or specify the file in the field without -data"
		}
		return out, fixable(fix, fmt.Errorf("kubeconfig %s: cannot be parsed: %w", path, err))
	}
	if err := r.complete(path, config, allowExec, out); err != nil {
		return out, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return out, nil
}

func (r *reader) complete(path string, config *api.Config, allowExec bool, out *access) error {
	// Relative paths in the kubeconfig are relative to its directory.
	for _, c := range config.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range config.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return err
	}
	cluster, err := currentCluster(config)
	if err != nil {
		return err
	}
	if err := r.readCluster(cluster, out.expiries); err != nil {
		return fmt.Errorf("clusters[%s].cluster.%w", config.Contexts[config.CurrentContext].Cluster, err)
	}
	user, err := currentUser(config)
	if err != nil {
		return err
	}
	r.files[0].secret = user.Token != "" || user.Password != "" || len(user.ClientKeyData) > 0
	if err := r.readUser(user, allowExec, out.expiries); err != nil {
		return fmt.Errorf("users[%s].user.%w", config.Contexts[config.CurrentContext].AuthInfo, err)
	}
	out.config, err = clientcmd.NewNonInteractiveClientConfig(*config, config.CurrentContext, nil, nil).ClientConfig()
	if err != nil {
		return err
	}
	out.insecure = append(serverFaults(out.config, path), insecureFiles(r.files)...)
	for i := range out.insecure {
		out.insecure[i] = out.insecure[i].WithName(kubeconfigObject(path))
	}
	return nil
}

const (
	fixName    = "use a name that this command lists: kubectl config get-%s --kubeconfig FILE"
	fixServer  = "set the server to a URL, such as https://192.0.2.1:6443"
	fixPEM     = "use PEM data, which begins with -----BEGIN"
	fixCert    = "use PEM data, which begins with -----BEGIN CERTIFICATE-----"
	fixEmpty   = "write the credential or certificate into the file"
	fixPair    = "use the key that belongs to the certificate"
	fixCommand = "install the program under /usr, or specify its absolute path"
)

func currentCluster(config *api.Config) (*api.Cluster, error) {
	if config.CurrentContext == "" {
		return nil, fixable("run: kubectl config use-context NAME --kubeconfig FILE",
			errors.New("current-context: missing or empty"))
	}
	context, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return nil, fixable(fmt.Sprintf(fixName, "contexts"),
			fmt.Errorf("current-context: there is no context %q", config.CurrentContext))
	}
	cluster, ok := config.Clusters[context.Cluster]
	if !ok {
		return nil, fixable(fmt.Sprintf(fixName, "clusters"),
			fmt.Errorf("contexts[%s].context.cluster: there is no cluster %q", config.CurrentContext, context.Cluster))
	}
	return cluster, nil
}

// currentUser returns the user of the current context, or an error if this user does not exist. If the context names no
// user, the result is a user without credentials.
func currentUser(config *api.Config) (*api.AuthInfo, error) {
	name := config.Contexts[config.CurrentContext].AuthInfo
	if name == "" {
		return &api.AuthInfo{}, nil
	}
	user, ok := config.AuthInfos[name]
	if !ok {
		return nil, fixable(fmt.Sprintf(fixName, "users"),
			fmt.Errorf("contexts[%s].context.user: there is no user %q", config.CurrentContext, name))
	}
	return user, nil
}

// readCluster reads the CA certificates into cluster. Like readUser, readCluster returns errors that start with the
// name of the invalid field.
func (r *reader) readCluster(cluster *api.Cluster, expiries map[string]Expiry) error {
	if cluster.Server == "" {
		return fixable(fixServer, errors.New("server: missing or empty"))
	}
	if _, _, err := rest.DefaultServerURL(cluster.Server, "", schema.GroupVersion{}, true); err != nil {
		return fixable(fixServer, fmt.Errorf("server: %w", err))
	}
	const name = "certificate-authority"
	bundle, field, err := r.fileOrData(cluster.CertificateAuthority, cluster.CertificateAuthorityData, name, false)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if len(bundle) == 0 {
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return fixable(fixCert, fmt.Errorf("%s: no readable certificate", field))
	}
	cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", bundle
	expiries[credentialCA] = authorityExpiry(bundle)
	return nil
}

func (r *reader) readUser(user *api.AuthInfo, allowExec bool, expiries map[string]Expiry) error {
	if err := checkPlugins(user, allowExec); err != nil {
		return err
	}
	if user.TokenFile != "" {
		digest := r.digest
		raw, err := r.read(user.TokenFile, true)
		r.digest = digest
		token := strings.TrimSpace(string(raw))
		if err == nil && token == "" {
			err = fixable(fixEmpty, fmt.Errorf("%s is empty", user.TokenFile))
		}
		if err != nil {
			return fmt.Errorf("tokenFile: %w", err)
		}
		user.Token = token // prefer the token in the file, as client-go does
	}
	if e, ok := tokenExpiry(user.Token); ok {
		expiries[credentialToken] = e
	}
	return r.readKeyPair(user, expiries)
}

func checkPlugins(user *api.AuthInfo, allowExec bool) error {
	if user.AuthProvider != nil {
		return fmt.Errorf("auth-provider: %q is not supported, because client-go has dropped auth providers; "+
			"use a token, a certificate or an exec plugin", user.AuthProvider.Name)
	}
	if user.Exec == nil {
		return nil
	}
	if !allowExec {
		return fmt.Errorf("exec: %q is not allowed to run; to allow exec plugins, set source.kube.allow_exec_plugins",
			user.Exec.Command)
	}
	_, err := exec.LookPath(user.Exec.Command)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("exec.command: %w", err)
	if errors.Is(err, exec.ErrNotFound) {
		return fixable(fixCommand, err)
	}
	return err // the cause matters: a missing file is not a permanent error if its file system is not mounted yet
}

func (r *reader) readKeyPair(user *api.AuthInfo, expiries map[string]Expiry) error {
	cert, certField, err := r.fileOrData(user.ClientCertificate, user.ClientCertificateData, "client-certificate",
		false)
	if err != nil {
		return fmt.Errorf("%s: %w", certField, err)
	}
	key, keyField, err := r.fileOrData(user.ClientKey, user.ClientKeyData, "client-key", true)
	if err != nil {
		return fmt.Errorf("%s: %w", keyField, err)
	}
	if len(cert) == 0 && len(key) == 0 {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		fix := fixPair
		if !isPEM(cert) || !isPEM(key) {
			fix = fixPEM
		}
		return fixable(fix, fmt.Errorf("%s and %s: %w", certField, keyField, err))
	}
	user.ClientCertificate, user.ClientCertificateData = "", cert
	user.ClientKey, user.ClientKeyData = "", key
	expiries[credentialCertificate] = Expiry{pair.Leaf.NotBefore, pair.Leaf.NotAfter}
	return nil
}

func isPEM(text []byte) bool {
	block, _ := pem.Decode(text)
	return block != nil
}

// fileOrData returns the content of a kubeconfig entry. Either the field NAME holds the path of a file, or the field
// NAME-data holds the content itself. If both are set, NAME-data takes precedence, as in client-go. field is
// the name of the field that supplied the content.
func (r *reader) fileOrData(path string, data []byte, name string, secret bool) (
	content []byte, field string, err error,
) {
	if len(data) > 0 {
		return data, name + "-data", nil
	}
	if path == "" {
		return nil, name, nil
	}
	content, err = r.read(path, secret)
	if err == nil && len(content) == 0 {
		err = fixable(fixEmpty, fmt.Errorf("%s is empty", path))
	}
	return content, name, err
}

// Files returns the paths of the kubeconfig and, if the kubeconfig is readable, of the files that it names.
func Files(kubeconfig string, allowExec bool) (out []string) {
	a, _ := loadKubeconfig(kubeconfig, allowExec) // Warnings returns the error
	for _, f := range a.files {
		out = append(out, f.path)
	}
	return out
}

func fixable(fix string, err error) error { return &fault.Fault{Message: err.Error(), Fix: fix} }

// Advice returns the fix for an error in a kubeconfig, or "" if the error message itself contains the fix.
func Advice(err error) string {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return files.Advice(failed.Path, failed.Err)
	}
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Fix
	}
	return ""
}
