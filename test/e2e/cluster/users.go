package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin has all rights. The user Edgeway may only list and watch the objects that a service proxy reads. Stranger has
// no rights.
const (
	Admin    = "admin"
	Edgeway  = "edgeway"
	Stranger = "stranger"
)

// Client holds the typed clients that tests use to write and read objects.
type Client struct {
	Core       corev1client.CoreV1Interface
	Discovery  discoveryv1client.DiscoveryV1Interface
	Networking networkingv1client.NetworkingV1Interface
}

func (c *Cluster) tokenFile() string { return filepath.Join(c.dir, "tokens.csv") }

func (c *Cluster) writeUsers() error {
	if err := os.Mkdir(filepath.Dir(c.Kubeconfig(Edgeway)), 0o700); err != nil {
		return err
	}
	c.users = map[string]string{Admin: rand.Text(), Edgeway: rand.Text(), Stranger: rand.Text()}
	var tokens strings.Builder
	for user, token := range c.users {
		group := ""
		if user == Admin {
			group = "system:masters"
		}
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, user, user, group)
		if err := clientcmd.WriteToFile(*c.kubeconfig(user), c.Kubeconfig(user)); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", user, err)
		}
	}
	return os.WriteFile(c.tokenFile(), []byte(tokens.String()), 0o600)
}

// Kubeconfig returns the path to a user's kubeconfig. The control plane writes its logs to another directory, because
// Edgeway watches the kubeconfig's directory.
func (c *Cluster) Kubeconfig(user string) string {
	return filepath.Join(c.dir, "users", user+".kubeconfig")
}

func (c *Cluster) kubeconfig(user string) *clientcmdapi.Config {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Server(), CertificateAuthorityData: c.creds.CA}
	cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: c.users[user]}
	cfg.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: user}
	cfg.CurrentContext = "test"
	return cfg
}

// Config returns a user's client configuration. Clients with the returned configuration dial from inside the cluster's
// network namespace, use protobuf and have no rate limit.
func (c *Cluster) Config(user string) *rest.Config {
	return &rest.Config{
		Host:            c.Server(),
		BearerToken:     c.users[user],
		TLSClientConfig: rest.TLSClientConfig{CAData: c.creds.CA},
		Dial:            c.Dial,
		QPS:             -1,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
}

// Client returns the typed clients for a user.
func (c *Cluster) Client(user string) (*Client, error) {
	cfg := c.Config(user)
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("HTTP client of %s: %w", user, err)
	}
	core, err := corev1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", user, err)
	}
	discovery, err := discoveryv1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", user, err)
	}
	networking, err := networkingv1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", user, err)
	}
	return &Client{Core: core, Discovery: discovery, Networking: networking}, nil
}

// verifyReady returns nil if the API server serves requests and both the default namespace and the Service
// default/kubernetes exist. The existence of default/kubernetes shows that the API server can allocate ClusterIPs.
func (c *Cluster) verifyReady(ctx context.Context) error {
	if err := c.admin.Core.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	if _, err := c.admin.Core.Namespaces().Get(ctx, corev1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return err
	}
	_, err := c.admin.Core.Services(corev1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}

// grant allows the user Edgeway to list and watch the objects that a service proxy reads, and waits until the user can.
// The role and its binding share a name that no manifest uses.
func (c *Cluster) grant(ctx context.Context) error {
	client, err := rbacv1client.NewForConfig(c.Config(Admin))
	if err != nil {
		return fmt.Errorf("client of %s: %w", Admin, err)
	}
	meta := metav1.ObjectMeta{Name: "user-" + Edgeway}
	verbs := []string{"list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"services", "nodes"}},
		{Verbs: verbs, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
		{Verbs: verbs, APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}},
	}}
	if _, err := client.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("role of %s: %w", Edgeway, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: Edgeway}},
	}
	if _, err := client.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("rights of %s: %w", Edgeway, err)
	}
	edgeway, err := c.Client(Edgeway)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	// The API server's authorizer learns of a new binding from a watch, so the server may first reject the user's
	// requests.
	return c.api.waitFor(ctx, func(ctx context.Context) error {
		_, err := edgeway.Core.Services("").List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
