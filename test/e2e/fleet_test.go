package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"edgeway/test/e2e/cluster"
)

// The commands in fleet.md create an identity for a host. The host's identity must give the daemon access to the
// objects that the daemon needs. The API server must assign the daemon's requests to the priority level for hosts, and
// other service accounts' requests to a different level.
func TestHostsHaveOwnPriorityLevel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publishRootCA()
	t.Cleanup(func() { // the commands fail if the service account exists, for example with -count=2
		accounts := sharedState.admin.Core.ServiceAccounts("edgeway")
		if err := accounts.Delete(cleanupContext(), "edge-1", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			l.must(err)
		}
	})
	made := filepath.Join(l.runAsAdmin(l.commands("packaging/doc/fleet.md", "## One identity for each host")[0]),
		"edge-1.kubeconfig")
	host, err := clientcmd.LoadFromFile(made)
	l.must(err)

	d := l.newDaemon()
	d.replaceUser(host.AuthInfos["edge-1"])
	d.startReady()
	l.must(d.hasNoFault())

	schema := l.uid("flowschemas")
	level := l.uid("prioritylevelconfigurations")
	if h := l.listHeaders(host.AuthInfos["edge-1"]); h.Get("X-Kubernetes-PF-FlowSchema-UID") != schema ||
		h.Get("X-Kubernetes-PF-PriorityLevel-UID") != level {
		t.Errorf("a host is not of FlowSchema %s and level %s: %s", schema, level, h)
	}
	if h := l.listHeaders(l.serviceAccount(l.newNamespace().name)); h.Get("X-Kubernetes-PF-FlowSchema-UID") == schema ||
		h.Get("X-Kubernetes-PF-PriorityLevel-UID") == level {
		t.Errorf("another service account is of the hosts' FlowSchema or level: %s", h)
	}
}

// publishRootCA creates the ConfigMap with the root CA, as a controller does in a real cluster.
func (l *lab) publishRootCA() {
	l.t.Helper()
	admin, err := clientcmd.LoadFromFile(sharedState.cluster.Kubeconfig(cluster.Admin))
	l.must(err)
	ca := string(admin.Clusters[admin.Contexts[admin.CurrentContext].Cluster].CertificateAuthorityData)
	_, err = sharedState.admin.Core.ConfigMaps(metav1.NamespaceSystem).Create(l.t.Context(),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
			Data:       map[string]string{"ca.crt": ca},
		}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		l.must(err)
	}
}

// uid returns the UID of the object named "edgeway" of the given resource type in the API group
// flowcontrol.apiserver.k8s.io.
func (l *lab) uid(resource string) string {
	l.t.Helper()
	var object metav1.PartialObjectMetadata
	raw, err := sharedState.admin.Core.RESTClient().Get().AbsPath("/apis/flowcontrol.apiserver.k8s.io/v1/"+resource+
		"/edgeway").
		SetHeader("Accept", "application/json").DoRaw(l.t.Context())
	l.must(err)
	l.must(json.Unmarshal(raw, &object))
	return string(object.UID)
}

// listHeaders lists Services as the given user, and returns the API server's response headers.
func (l *lab) listHeaders(user *api.AuthInfo) http.Header {
	l.t.Helper()
	config := sharedState.cluster.Config(cluster.Stranger)
	config.BearerToken = user.Token
	client, err := rest.HTTPClientFor(config)
	l.must(err)
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet,
		sharedState.cluster.Server()+"/api/v1/services?limit=1", nil)
	l.must(err)
	response, err := client.Do(request)
	l.must(err)
	l.must(response.Body.Close())
	return response.Header
}
