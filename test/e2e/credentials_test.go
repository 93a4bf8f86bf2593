package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"edgeway/test/e2e/cluster"
)

// credentialsLimit is the time limit for the daemon to start using new credentials.
const credentialsLimit = time.Minute

func (d *daemon) kubeconfigFile() string { return filepath.Join(d.dir, "kubeconfig") }

// replaceUser replaces the user in the kubeconfig. Like common tools, replaceUser writes a new file and renames it over
// the old file.
func (d *daemon) replaceUser(user *api.AuthInfo) {
	d.t.Helper()
	config, err := clientcmd.LoadFromFile(d.kubeconfigFile())
	d.must(err)
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = user
	d.must(clientcmd.WriteToFile(*config, d.kubeconfigFile()+".new"))
	d.must(os.Rename(d.kubeconfigFile()+".new", d.kubeconfigFile()))
}

func (l *lab) token(user string) *api.AuthInfo {
	l.t.Helper()
	config, err := clientcmd.LoadFromFile(sharedState.cluster.Kubeconfig(user))
	l.must(err)
	return config.AuthInfos[user]
}

func (l *lab) certificate(user string) *api.AuthInfo {
	l.t.Helper()
	cert, key, err := sharedState.cluster.Certificate(user)
	l.must(err)
	return &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
}

func (d *daemon) hasMetric(want string) func() error {
	return func() error {
		_, body, err := d.get(metricsAddr, "/metrics")
		if err != nil || !strings.Contains(body, "\n"+want) {
			return fmt.Errorf("no metric %q: %w", want, orElse(err, "it is not there"))
		}
		return nil
	}
}

// hasNoFault returns an error if the daemon reports a fault related to the API server.
func (d *daemon) hasNoFault() error {
	s, err := d.status()
	if err != nil {
		return err
	}
	for _, src := range s.Sources {
		if src.Name == "kube" && src.Fault.Message != "" {
			return fmt.Errorf("source kube: %s", src.Fault.Message)
		}
	}
	return nil
}

// hasCondition returns an error unless the host is healthy and reports the named condition with a message that contains
// the given words.
func (d *daemon) hasCondition(name, words string) func() error {
	return func() error {
		s, err := d.status()
		if err != nil {
			return err
		}
		for _, c := range s.Faults {
			if s.Healthy && c.ID == name && strings.Contains(c.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("no condition %s with %q on a healthy host: %+v", name, words, s)
	}
}

// The test replaces the daemon's credentials several times. The API server's responses show which credentials the
// daemon uses.
func TestCredentialsReplacedWithoutRestart(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n, _, nodePort := d.shop()
	endpoints := map[string]string{"ep1": ep1Addr, "ep2": ep2Addr}
	now, other := "ep1", "ep2"
	follows := func(what string) {
		t.Helper()
		now, other = other, now
		n.setEndpoints("shop", endpoints[now])
		took := l.waitFor(credentialsLimit, answers(l.client, nodePort, now))
		t.Logf("%s: a change arrived after %.1f s", what, took.Seconds())
		l.waitFor(credentialsLimit, d.hasNoFault) // a remaining fault would affect the next step
	}
	refused := func(what, words string) {
		t.Helper()
		took := l.waitFor(credentialsLimit, d.statusPrints("source-kube", words))
		t.Logf("%s: refused after %.1f s", what, took.Seconds())
		l.must(answers(l.client, nodePort, now)())
	}

	d.replaceUser(l.token(cluster.Stranger))
	refused("token of a stranger", "forbidden")
	d.replaceUser(l.token(cluster.Edgeway))
	follows("token")

	d.replaceUser(&api.AuthInfo{Token: "nobody's"})
	refused("token of nobody", "(401)")
	tokenFile := filepath.Join(d.dir, "token")
	l.must(os.WriteFile(tokenFile, []byte(l.token(cluster.Edgeway).Token), 0o600))
	d.replaceUser(&api.AuthInfo{TokenFile: tokenFile})
	follows("token file")
	l.must(os.WriteFile(tokenFile, []byte("nobody's"), 0o600))
	l.waitFor(2*credentialsLimit, func() error { // requests fail only after client-go has read the file again
		d.link.cut()
		d.link.restore()
		time.Sleep(3 * time.Second)
		return d.statusPrints("source-kube", "(401)")()
	})
	refused("token file that was rewritten", "(401)")

	d.replaceUser(l.certificate(cluster.Edgeway))
	follows("client certificate")
	l.waitFor(longTimeout, d.hasMetric(`edgeway_credential_expiry_timestamp_seconds{credential="client-certificate"}`))
	l.waitFor(longTimeout, d.hasMetric(`edgeway_credential_expiry_timestamp_seconds{credential="ca"}`))
	d.replaceUser(l.certificate(cluster.Stranger))
	refused("client certificate of a stranger", "forbidden")

	d.replaceUser(l.serviceAccount(n.name))
	refused("service account without rights", "system:serviceaccount:"+n.name)
	l.waitFor(longTimeout, d.hasMetric(`edgeway_credential_expiry_timestamp_seconds{credential="token"}`))

	// The API server moves to another address, and the old address stops working.
	d.link.cut()
	d.link = newLink(l)
	d.link.kubeconfig(l, cluster.Edgeway, d.kubeconfigFile())
	follows("another address")

	l.must(os.WriteFile(d.kubeconfigFile(), []byte("{"), 0o600))
	l.waitFor(credentialsLimit, d.hasCondition("kubeconfig-refused", "cannot be parsed"))
	l.waitFor(longTimeout, d.logged("fault began", "fault=kubeconfig-refused"))
	follows("kubeconfig that cannot be used")
	d.link.kubeconfig(l, cluster.Edgeway, d.kubeconfigFile())
	l.waitFor(credentialsLimit, func() error {
		if err := d.hasCondition("kubeconfig-refused", "")(); err == nil {
			return fmt.Errorf("the kubeconfig is still refused")
		}
		return nil
	})
	follows("kubeconfig that was corrected")
}

// serviceAccount returns an expiring token for a service account without rights.
func (l *lab) serviceAccount(namespace string) *api.AuthInfo {
	l.t.Helper()
	accounts := sharedState.admin.Core.ServiceAccounts(namespace)
	_, err := accounts.Create(l.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "edge"}},
		metav1.CreateOptions{})
	l.must(err)
	request, err := accounts.CreateToken(l.t.Context(), "edge", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))},
	}, metav1.CreateOptions{})
	l.must(err)
	return &api.AuthInfo{Token: request.Status.Token}
}

// The command `edgeway config check`, the log and the status must report an insecure kubeconfig. The daemon must
// nevertheless use the kubeconfig.
func TestInsecureKubeconfigIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*api.Cluster)
		mode   os.FileMode
		want   string
	}{
		"no verification": {func(c *api.Cluster) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData, c.TLSServerName = true, nil, ""
		}, 0o600, "insecure-skip-tls-verify"},
		"no TLS":            {func(c *api.Cluster) { c.Server = strings.Replace(c.Server, "https", "http", 1) }, 0o600, "TLS"},
		"readable for all":  {func(*api.Cluster) {}, 0o644, "readable by every user"},
		"writable for all":  {func(*api.Cluster) {}, 0o602, "writable by every user"},
		"nothing dangerous": {func(*api.Cluster) {}, 0o600, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			d := l.newDaemon()
			config, err := clientcmd.LoadFromFile(d.kubeconfigFile())
			l.must(err)
			for _, cl := range config.Clusters {
				c.change(cl)
			}
			l.must(clientcmd.WriteToFile(*config, d.kubeconfigFile()))
			l.must(os.Chmod(d.kubeconfigFile(), c.mode))
			out, errs, code := d.edgeway("config", "check")
			if code != 0 || !strings.Contains(out, "valid") || strings.Contains(errs, "WARNING") != (c.want != "") ||
				!strings.Contains(errs, c.want) {
				t.Errorf("config check ended with %d: %s%s", code, out, errs)
			}
			d.start()
			if c.want == "" {
				l.waitFor(longTimeout, d.healthy)
				if d.logged("fault=kubeconfig-insecure")() == nil || d.statusPrints("kubeconfig-insecure")() == nil {
					t.Error("a kubeconfig that is in order is complained about")
				}
				return
			}
			l.waitFor(longTimeout, d.logged("fault began", "fault=kubeconfig-insecure", c.want))
			l.waitFor(longTimeout, d.statusHas("kubeconfig-insecure", c.want))
		})
	}
}

// statusHas is like statusPrints, but accepts an unhealthy host.
func (d *daemon) statusHas(words ...string) func() error {
	return func() error {
		out, errs, _ := d.edgeway("status")
		for _, w := range words {
			if !strings.Contains(out, w) {
				return fmt.Errorf("edgeway status does not say %q:\n%s%s", w, out, errs)
			}
		}
		return nil
	}
}
