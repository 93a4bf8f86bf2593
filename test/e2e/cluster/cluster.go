package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options configures a control plane. With the zero value, the control plane uses the loopback interface of the
// process's own network namespace.
type Options struct {
	// Netns is the name of the control plane's network namespace (as in `ip netns`), or "" for this process's
	// namespace. The loopback interface of the network namespace must be up.
	Netns string
	// Addr is the API server's address, by default 127.0.0.1. The API server listens only on Addr, so an interface in
	// the network namespace must have this address.
	Addr netip.Addr
	// RestoreDir is a directory that Snapshot wrote. If RestoreDir is "", etcd starts without data.
	RestoreDir string
	// Programs is the directory that contains etcd and kube-apiserver. If Programs is "", Start calls the function
	// Programs.
	Programs string
	// Fairness enables the API server's default limits and queues for requests.
	Fairness bool
	// APIServer holds additional options for the API server, which override the default options.
	APIServer []string
}

// ServiceCIDRs returns the cluster's ClusterIP ranges.
func ServiceCIDRs() [2]netip.Prefix {
	return [2]netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/108")}
}

// Cluster is a running control plane. Only the methods that return clients and paths are safe for concurrent use.
type Cluster struct {
	opts    Options
	dir     string
	creds   *credentials
	users   map[string]string // tokens by user name
	admin   *Client
	apiPort int
	etcd    *process
	api     *process
	etcdURL string
	peerURL string
}

// Start starts a control plane and waits until the API server serves requests and all users have their rights.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if !opts.Addr.IsValid() {
		opts.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if opts.Programs == "" {
		dir, err := Programs(ctx)
		if err != nil {
			return nil, err
		}
		opts.Programs = dir
	}
	for attempt := 1; ; attempt++ {
		dir, err := os.MkdirTemp("", "edgeway-cluster-")
		if err != nil {
			return nil, fmt.Errorf("cluster directory: %w", err)
		}
		c := &Cluster{opts: opts, dir: dir}
		if err = c.start(ctx); err == nil {
			return c, nil
		}
		c.Stop()
		// Another program may open one of the free ports before etcd or the API server does.
		if attempt == 5 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

func (c *Cluster) start(ctx context.Context) error {
	ports, err := c.freePorts(3)
	if err != nil {
		return err
	}
	c.apiPort = ports[0]
	c.etcdURL = "http://127.0.0.1:" + strconv.Itoa(ports[1])
	c.peerURL = "http://127.0.0.1:" + strconv.Itoa(ports[2])
	if c.creds, err = newCredentials(c.dir,
		[]netip.Addr{c.opts.Addr, netip.AddrFrom4([4]byte{127, 0, 0, 1})}); err != nil {
		return err
	}
	if err := c.writeUsers(); err != nil {
		return err
	}
	if c.admin, err = c.Client(Admin); err != nil {
		return err
	}
	if c.opts.RestoreDir != "" {
		if err := os.CopyFS(c.etcdData(), os.DirFS(c.opts.RestoreDir)); err != nil {
			return fmt.Errorf("restore of etcd: %w", err)
		}
	}
	if err := c.StartEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.grant(ctx)
}

// Stop stops the control plane and removes all of its files. A second call to Stop does nothing.
func (c *Cluster) Stop() {
	c.StopAPIServer()
	c.StopEtcd()
	_ = os.RemoveAll(c.dir)
}

// Server returns the API server's URL, which a restart does not change.
func (c *Cluster) Server() string {
	return "https://" + netip.AddrPortFrom(c.opts.Addr, uint16(c.apiPort)).String()
}

// StartAPIServer starts the API server after StopAPIServer, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	cidrs := ServiceCIDRs()
	options := c.opts.APIServer
	if !c.opts.Fairness {
		// In most benchmarks and tests, the API server has only one client and needs no limits.
		options = append([]string{
			"--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
		}, options...)
	}
	var err error
	c.api, err = startProcess(c.dir, c.opts.Netns, append([]string{
		filepath.Join(c.opts.Programs, "kube-apiserver"),
		"--bind-address=" + c.opts.Addr.String(),
		"--advertise-address=" + c.opts.Addr.String(),
		"--secure-port=" + strconv.Itoa(c.apiPort),
		"--etcd-servers=" + c.etcdURL,
		"--tls-cert-file=" + c.creds.certFile,
		"--tls-private-key-file=" + c.creds.keyFile,
		"--token-auth-file=" + c.tokenFile(),
		"--client-ca-file=" + c.creds.caFile,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://edgeway.test",
		"--service-account-key-file=" + c.creds.serviceAccountKeyFile,
		"--service-account-signing-key-file=" + c.creds.serviceAccountKeyFile,
		"--service-cluster-ip-range=" + cidrs[0].String() + "," + cidrs[1].String(),
		"--service-node-port-range=" + strconv.Itoa(firstNodePort) + "-" + strconv.Itoa(lastNodePort),
		// The ServiceAccount admission plugin needs service accounts from a controller-manager. This control plane has
		// no controller-manager and runs no pods.
		"--disable-admission-plugins=ServiceAccount",
		// Without --endpoint-reconciler-type=none, the API server would register an endpoint that simulated hosts
		// cannot reach.
		"--endpoint-reconciler-type=none",
		"--shutdown-delay-duration=0s",
	}, options...)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return c.api.waitFor(ctx, c.verifyReady)
}

// StopAPIServer kills the API server, which breaks its connections immediately.
func (c *Cluster) StopAPIServer() {
	c.api.kill()
	c.api = nil
}

// APIServerPID returns the API server's process ID. The API server must be running.
func (c *Cluster) APIServerPID() int { return c.api.cmd.Process.Pid }

func (c *Cluster) freePorts(n int) ([]int, error) {
	var ports []int
	err := RunInNetns(c.opts.Netns, func() error {
		for range n {
			l, err := net.Listen("tcp", net.JoinHostPort(c.opts.Addr.String(), "0"))
			if err != nil {
				return fmt.Errorf("free port: %w", err)
			}
			defer l.Close()
			ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		}
		return nil
	})
	return ports, err
}
