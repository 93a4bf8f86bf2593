package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"edgeway/test/e2e/cluster"
)

// accessManifest is the path of the manifest that fleet.md tells administrators to apply. namespace is the Kubernetes
// namespace of the hosts' service accounts.
const (
	accessManifest = "etc/edgeway/fleet-access.yaml"
	namespace      = "edgeway"
)

func kubeconfigFile(dir string, host int) string {
	return filepath.Join(dir, fmt.Sprintf("%04d", host))
}

// makeIdentities creates a service account and a kubeconfig for each host, and grants the service accounts the rights
// that the hosts need.
func (l *lab) makeIdentities(ctx context.Context) error {
	if err := os.Mkdir(l.kubeconfigDir(), 0o711); err != nil {
		return err
	}
	if err := l.kubectl(ctx, "apply", "-f", accessManifest); err != nil {
		return err
	}
	for host := range l.opts.hosts {
		token, err := l.account(ctx, namespace, fmt.Sprintf("fleet-%04d", host))
		if err != nil {
			return err
		}
		if err := l.writeKubeconfig(kubeconfigFile(l.kubeconfigDir(), host), token); err != nil {
			return err
		}
	}
	token, err := l.account(ctx, "default", "controller")
	if err != nil {
		return err
	}
	l.controllerToken = token
	if err := l.kubectl(ctx, "create", "clusterrolebinding", "controller", "--clusterrole=edgeway",
		"--serviceaccount=default:controller"); err != nil {
		return err
	}
	return os.Chmod(l.dir, 0o711)
}

func (l *lab) account(ctx context.Context, namespace, name string) (token string, err error) {
	admin, err := l.cluster.Client(cluster.Admin)
	if err != nil {
		return "", err
	}
	accounts := admin.Core.ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		return "", err
	}
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

func (l *lab) writeKubeconfig(path, token string) error {
	config, err := clientcmd.LoadFromFile(l.cluster.Kubeconfig(cluster.Edgeway))
	if err != nil {
		return err
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = &api.AuthInfo{Token: token}
	return errors.Join(clientcmd.WriteToFile(*config, path), os.Chown(path, hostsUser, 0))
}

// setPriorityLevel assigns the hosts' requests to a separate priority level of the API server if own is true, and
// otherwise to the level for all service accounts.
func (l *lab) setPriorityLevel(ctx context.Context, own bool) error {
	if own {
		return l.kubectl(ctx, "apply", "-f", accessManifest)
	}
	return l.kubectl(ctx, "delete", "--ignore-not-found", "flowschemas.flowcontrol.apiserver.k8s.io/edgeway",
		"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io/edgeway")
}

func (l *lab) kubectl(ctx context.Context, args ...string) error {
	programs, err := cluster.Programs(ctx)
	if err != nil {
		return err
	}
	all := append([]string{
		"netns", "exec", l.core(), filepath.Join(programs, "kubectl"), "--kubeconfig",
		l.cluster.Kubeconfig(cluster.Admin),
	}, args...)
	if out, err := exec.CommandContext(ctx, "ip", all...).CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %q: %w\n%s", args, err, out)
	}
	return nil
}
