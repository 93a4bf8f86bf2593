package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"edgeway/test/e2e/cluster"
	"edgeway/test/netlab"
)

// sharedState holds the state that all tests share. Only TestMain writes to sharedState.
var sharedState struct {
	cluster *cluster.Cluster
	admin   *cluster.Client
	binary  string
}

func TestMain(m *testing.M) {
	netlab.PeerMain()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "edgeway-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = setUp(dir)
	}
	if sharedState.cluster != nil {
		defer sharedState.cluster.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

func setUp(dir string) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	sharedState.binary = filepath.Join(dir, "edgeway")
	build := exec.CommandContext(ctx, "go", "build", "-o", sharedState.binary, "edgeway/cmd/edgeway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build of edgeway: %w\n%s", err, out)
	}
	var err error
	if sharedState.cluster, err = cluster.Start(ctx, cluster.Options{Fairness: true}); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if sharedState.admin, err = sharedState.cluster.Client(cluster.Admin); err != nil {
		return err
	}
	fmt.Printf("program built and control plane started in %.1f s\n", time.Since(began).Seconds())
	return nil
}
