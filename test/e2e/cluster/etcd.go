package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const maxTxnOps = 1024

func (c *Cluster) etcdData() string { return filepath.Join(c.dir, "etcd") }

// StartEtcd starts etcd after StopEtcd, and waits until it is healthy.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	var err error
	c.etcd, err = startProcess(c.dir, c.opts.Netns, filepath.Join(c.opts.Programs, "etcd"),
		"--data-dir="+c.etcdData(),
		"--name=test",
		"--listen-client-urls="+c.etcdURL,
		"--advertise-client-urls="+c.etcdURL,
		"--listen-peer-urls="+c.peerURL,
		"--initial-advertise-peer-urls="+c.peerURL,
		"--initial-cluster=test="+c.peerURL,
		"--unsafe-no-fsync",
		"--max-txn-ops="+strconv.Itoa(maxTxnOps),
		"--quota-backend-bytes=4294967296",
		// Without etcd's progress notifications, the API server sends no bookmarks for idle resources. kubeadm sets the
		// same interval.
		"--watch-progress-notify-interval=5s",
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return c.etcd.waitFor(ctx, func(ctx context.Context) error {
		_, err := c.etcdRevision(ctx)
		return err
	})
}

// StopEtcd kills etcd but does not delete its data.
func (c *Cluster) StopEtcd() {
	c.etcd.kill()
	c.etcd = nil
}

// Compact deletes all revisions except the newest from etcd. An API server that starts after Compact returns "410 Gone"
// if a watch starts at a deleted revision.
func (c *Cluster) Compact(ctx context.Context) error {
	revision, err := c.etcdRevision(ctx)
	if err != nil {
		return err
	}
	return c.etcdCall(ctx, "/v3/kv/compaction", map[string]any{"revision": revision, "physical": true}, nil)
}

// Snapshot stops the control plane, copies etcd's data to dir and starts the control plane again. The directory dir
// must not exist before the call. To restore the data, set Options.RestoreDir to dir.
func (c *Cluster) Snapshot(ctx context.Context, dir string) error {
	c.StopAPIServer()
	c.StopEtcd()
	if err := os.CopyFS(dir, os.DirFS(c.etcdData())); err != nil {
		return fmt.Errorf("copy of etcd's data: %w", err)
	}
	if err := c.StartEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// etcdRevision returns the newest revision as a decimal string, because proto3 encodes an int64 as a string in JSON.
func (c *Cluster) etcdRevision(ctx context.Context) (string, error) {
	var reply struct {
		Header struct{ Revision string }
	}
	query := map[string]any{"key": []byte("any")} // encoding/json encodes bytes as base64, as the gateway expects
	err := c.etcdCall(ctx, "/v3/kv/range", query, &reply)
	return reply.Header.Revision, err
}

func (c *Cluster) etcdPut(ctx context.Context, objects map[string][]byte) error {
	var puts []any
	for key, value := range objects {
		puts = append(puts, map[string]any{"requestPut": map[string][]byte{"key": []byte(key), "value": value}})
	}
	return c.etcdCall(ctx, "/v3/kv/txn", map[string]any{"success": puts}, nil)
}

// etcdCall sends a request to etcd's JSON gateway, so this module needs neither etcd's client nor gRPC.
func (c *Cluster) etcdCall(ctx context.Context, path string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("etcd request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("etcd request: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s", path, resp.Status, raw)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(raw, reply)
}
