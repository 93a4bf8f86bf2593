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
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"edgeway/test/e2e/cluster"
)

// The README's commands must set up a host that serves a cluster's Services. The guide cluster.md explains the README's
// commands, and lists alternative commands for a token that does not expire.
func TestGuideKubeconfigCommands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.publishRootCA()
	const guide = "packaging/doc/cluster.md"
	steps := l.commands("README.md", "## With a cluster")
	if diff := cmp.Diff(steps, l.commands(guide, "## Access for one host")); diff != "" || len(steps) != 2 {
		t.Fatalf("README: %d blocks of commands, want one for a machine with kubectl and one for the host; cluster.md differs:\n%s", len(steps), diff)
	}
	made := filepath.Join(l.runAsAdmin(steps[0]), "edgeway.kubeconfig")
	lasting := l.commands(guide, "## A token that does not expire")[0]
	l.requireExactRights(filepath.Join(l.runAsAdmin(lasting, "edgeway-token"), "edgeway.kubeconfig"))
	l.requireExactRights(made)

	d := l.newDaemon()
	before, after, found := strings.Cut(steps[1], "sudo systemctl enable --now edgeway\n")
	if out := d.runAsOperator(made, before+"sudo edgeway config check\n"); !found ||
		!strings.Contains(out, "The configuration is valid.") {
		t.Errorf("before the start, which was found: %v\n%s", found, out)
	}
	d.startReady()
	if out := d.runAsOperator(made, after+"sudo edgeway status --wait\n"); !strings.Contains(out, "kube: synced") {
		t.Errorf("after the start:\n%s", out)
	}
	n := l.newNamespace()
	clusterIP, nodePort := n.createWeb("shop")
	l.waitFor(longTimeout, answers(l.node, clusterIP, "ep1"))
	n.setEndpoints("shop", ep2Addr)
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep2"))
	l.must(d.hasNoFault())
	l.waitFor(longTimeout, func() error {
		out, errs, _ := d.edgeway("plan", "--json")
		if want := cluster.ServiceCIDRs()[0].String(); !strings.Contains(out, want) {
			return fmt.Errorf("the plan does not have the range %s:\n%s%s", want, out, errs)
		}
		return nil
	})
}

// requireExactRights fails the test unless a kubeconfig grants exactly the rights that a host needs. requireExactRights
// ignores the right to query the user's own rights, because every user has this right.
func (l *lab) requireExactRights(kubeconfig string) {
	l.t.Helper()
	kubectl := filepath.Join(programs(l.t), "kubectl")
	out, err := exec.CommandContext(l.t.Context(), kubectl, "--kubeconfig", kubeconfig, "auth", "can-i", "--list",
		"--no-headers", "--namespace", "kube-system").Output()
	l.must(err)
	var rights []string
	for line := range strings.Lines(string(out)) {
		if what := strings.Fields(line); line[0] != ' ' && !strings.HasPrefix(what[0], "selfsubject") {
			rights = append(rights, strings.Join(what, " "))
		}
	}
	slices.Sort(rights)
	want := []string{
		"endpointslices.discovery.k8s.io [] [] [list watch]",
		"servicecidrs.networking.k8s.io [] [] [list watch]", "services [] [] [list watch]",
	}
	if diff := cmp.Diff(want, rights); diff != "" {
		l.t.Errorf("rights of the host (-want +got):\n%s\n%s", diff, out)
	}
}

// runAsOperator runs commands on the host as an operator would. The working directory contains a copy of the kubeconfig
// with the link's address in place of the API server's. In the commands, the daemon's directory replaces /etc/edgeway,
// the root group replaces the package's group, and a shell function replaces sudo.
func (d *daemon) runAsOperator(kubeconfig, commands string) (output string) {
	d.t.Helper()
	home := d.t.TempDir()
	d.link.writeKubeconfig(d.lab, kubeconfig, filepath.Join(home, "edgeway.kubeconfig"))
	main, err := os.ReadFile(d.config)
	d.must(err)
	own := fmt.Sprintf("kubeconfig = %q\n", d.kubeconfigFile()) // the guide's commands set this key
	d.must(os.WriteFile(d.config, []byte(strings.Replace(string(main), own, "", 1)), 0o600))
	d.must(os.MkdirAll(filepath.Join(d.dir, "conf.d"), 0o755))
	commands = strings.NewReplacer("/etc/edgeway/", d.dir+"/", " -g edgeway ", " -g root ").Replace(commands)
	cmd := d.node.Command(d.t.Context(), "bash", "-euo", "pipefail", "-c",
		`sudo() { "$@"; }; edgeway() { "$0" "$@" --config "$CONFIG"; };`+"\n"+commands, sharedState.binary)
	cmd.Dir, cmd.Env = home, append(cmd.Environ(), "CONFIG="+d.config, "HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("the commands for an operator of the host: %v\n%s\n%s", err, commands, out)
	}
	return string(out)
}

// runAsAdmin runs commands as a cluster administrator, in a directory that contains example files from etc/edgeway, and
// fills in the token Secrets that the commands create in kube-system.
func (l *lab) runAsAdmin(commands string, secrets ...string) (dir string) {
	l.t.Helper()
	repository, err := filepath.Abs("../..")
	l.must(err)
	dir = l.t.TempDir()
	for _, example := range []string{"kubernetes-access.yaml", "fleet-access.yaml", "edgeway-kubeconfig"} {
		l.must(os.Symlink(filepath.Join(repository, "etc", "edgeway", example), filepath.Join(dir, example)))
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*longTimeout)
	defer cancel()
	var issued errgroup.Group
	for _, secret := range secrets {
		issued.Go(func() error { return issueToken(ctx, metav1.NamespaceSystem, secret) })
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+programs(l.t)+":"+os.Getenv("PATH"), "HOME="+dir,
		"KUBECONFIG="+sharedState.cluster.Kubeconfig(cluster.Admin))
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("the commands for an administrator: %v\n%s", err, out)
	}
	l.must(issued.Wait())
	return dir
}

func programs(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../scripts/controlplane", "kubectl").Output()
	if err != nil {
		t.Fatalf("scripts/controlplane kubectl, which builds it: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func (l *lab) commands(file, heading string) (blocks []string) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	l.must(err)
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	within := false
	for line := range strings.Lines(section) {
		command, isCode := strings.CutPrefix(line, "    ")
		if isCode && !within {
			blocks = append(blocks, "")
		}
		if within = isCode; isCode {
			blocks[len(blocks)-1] += command
		}
	}
	return blocks
}

// issueToken stands in for the token controller, because this control plane has no controller-manager. issueToken fills
// in a service account's Secret as soon as the Secret exists.
func issueToken(ctx context.Context, namespace, name string) error {
	secrets := sharedState.admin.Core.Secrets(namespace)
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
	admin, err := clientcmd.LoadFromFile(sharedState.cluster.Kubeconfig(cluster.Admin))
	if err != nil {
		return err
	}
	account := secret.Annotations[corev1.ServiceAccountNameKey]
	request, err := sharedState.admin.Core.ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
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
