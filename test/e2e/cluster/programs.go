package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs returns the directory that contains etcd and kube-apiserver: $EDGEWAY_CONTROLPLANE_BIN if it is set, or the
// output directory of scripts/controlplane. If EDGEWAY_CONTROLPLANE_BIN is not set, Programs runs scripts/controlplane,
// which builds missing programs in a few minutes.
func Programs(ctx context.Context) (string, error) {
	if dir := os.Getenv("EDGEWAY_CONTROLPLANE_BIN"); dir != "" {
		return dir, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts", "controlplane"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the control plane: %w", err)
	}
	return strings.TrimSpace(out.String()), nil
}

// repositoryRoot returns the root directory of the repository that contains the working directory.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "controlplane")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("cannot find scripts/controlplane above the working directory")
}
