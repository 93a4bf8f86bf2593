package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"edgeway/test/e2e/cluster"
)

// The README's way to a host's kubeconfig, by its own words: the commands are read from there.
func TestTheReadmesWayToAKubeconfig(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	kubectl, made := l.followReadme()
	d := l.newDaemon()
	d.link.lead(l, made, d.kubeconfigFile())
	if out, errs, code := d.edgeway("config", "check"); code != 0 || errs != "" {
		t.Errorf("config check of the kubeconfig ended with %d:\n%s%s", code, out, errs)
	}
	d.startReady()
	n := l.namespace()
	clusterIP, nodePort := n.web("shop")
	l.within(patience, answers(l.node, clusterIP, "ep1"))
	n.endpoints("shop", ep2Addr)
	l.within(patience, answers(l.client, nodePort, "ep2"))
	l.must(d.hasNoFault())
	// The ranges come from the cluster's ServiceCIDR.
	l.within(patience, func() error {
		out, errs, _ := d.edgeway("plan", "--json")
		if want := cluster.ServiceCIDRs()[0].String(); !strings.Contains(out, want) {
			return fmt.Errorf("the plan does not have the range %s:\n%s%s", want, out, errs)
		}
		return nil
	})

	// These rights, and no others: what everybody may is to ask for the own ones.
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", made, "auth", "can-i", "--list", "--no-headers", "--namespace", "kube-system").Output()
	l.must(err)
	var rights []string
	for line := range strings.Lines(string(out)) {
		if what := strings.Fields(line); line[0] != ' ' && !strings.HasPrefix(what[0], "selfsubject") {
			rights = append(rights, strings.Join(what, " "))
		}
	}
	slices.Sort(rights)
	want := []string{"endpointslices.discovery.k8s.io [] [] [list watch]", "servicecidrs.networking.k8s.io [] [] [list watch]", "services [] [] [list watch]"}
	if diff := cmp.Diff(want, rights); diff != "" {
		t.Errorf("rights of the host (-want +got):\n%s\n%s", diff, out)
	}
}

// followReadme does as an administrator of the cluster. It gives kubectl and the kubeconfig that came out of it.
func (l *lab) followReadme() (kubectl, kubeconfig string) {
	l.t.Helper()
	repository, err := filepath.Abs("../..")
	l.must(err)
	built, err := exec.CommandContext(l.t.Context(), filepath.Join(repository, "scripts", "controlplane"), "kubectl").Output()
	l.must(err)
	programs := strings.TrimSpace(string(built))
	dir := l.t.TempDir()
	l.must(os.Symlink(filepath.Join(repository, "etc"), filepath.Join(dir, "etc")))
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*patience)
	defer cancel()
	issued := make(chan error, 1)
	go func() { issued <- issueToken(ctx, metav1.NamespaceSystem, "edgeway-token") }()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", l.commands(filepath.Join(repository, "README.md"), "## With a cluster"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "HOME="+dir, "KUBECONFIG="+shared.cluster.Kubeconfig(cluster.Admin))
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("the commands of the README: %v (scripts/controlplane kubectl builds kubectl)\n%s", err, out)
	}
	l.must(<-issued)
	return filepath.Join(programs, "kubectl"), filepath.Join(dir, "edgeway.kubeconfig")
}

// commands gives the first commands of a section of a file in Markdown.
func (l *lab) commands(path, heading string) string {
	l.t.Helper()
	text, err := os.ReadFile(path)
	l.must(err)
	_, section, ok := strings.Cut(string(text), "\n"+heading+"\n")
	var out strings.Builder
	for line := range strings.Lines(section) {
		command, isCode := strings.CutPrefix(line, "    ")
		switch {
		case isCode:
			out.WriteString(command)
		case out.Len() > 0:
			return out.String()
		}
	}
	l.t.Fatalf("no commands in %s of %s (found: %t)", heading, path, ok)
	return ""
}

// issueToken does what the token controller does, which runs in each cluster but this: it fills in the Secret of a
// service account, once there is one.
func issueToken(ctx context.Context, namespace, name string) error {
	secrets := shared.admin.Core.Secrets(namespace)
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	for ; apierrors.IsNotFound(err); secret, err = secrets.Get(ctx, name, metav1.GetOptions{}) {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	if secret.Type != corev1.SecretTypeServiceAccountToken {
		return fmt.Errorf("Secret %s is of type %s: no controller fills it in", name, secret.Type)
	}
	admin, err := clientcmd.LoadFromFile(shared.cluster.Kubeconfig(cluster.Admin))
	if err != nil {
		return err
	}
	account := secret.Annotations[corev1.ServiceAccountNameKey]
	request, err := shared.admin.Core.ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("service account %s: %w", account, err)
	}
	secret.Data = map[string][]byte{
		corev1.ServiceAccountTokenKey:  []byte(request.Status.Token),
		corev1.ServiceAccountRootCAKey: admin.Clusters[admin.Contexts[admin.CurrentContext].Cluster].CertificateAuthorityData,
	}
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	return err
}
