package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/planner"
	"edgeway/daemon/source/kube"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func TestConntrackCheck(t *testing.T) {
	h, f := testHost()
	wantFindings(t, h, "conntrack") // the conntrack module is not loaded
	f.set("netfilter/nf_conntrack_max", "1000")
	for count, want := range map[string]string{
		"10":  "ok: the connection tracking table has 10 entries; the limit is 1000",
		"760": "warning: … 76 % of its limit … | sysctl -w net.netfilter.nf_conntrack_max=2000",
		"960": "problem: … 96 % full … | sysctl -w net.netfilter.nf_conntrack_max=2000",
	} {
		f.set("netfilter/nf_conntrack_count", count)
		wantFindings(t, h, "conntrack", want)
	}
}

func TestReversePathFilterCheck(t *testing.T) {
	h, f := testHost()
	f.set("ipv4/conf/all/rp_filter", "0")
	f.files[netFiles+"netstat"] = "TcpExt: SyncookiesSent IPReversePathFilter X\nTcpExt: 5 0 7\nIpExt: A B\nIpExt: 1 2\n"
	wantFindings(t, h, "rp-filter", "ok: … dropped no packets")
	f.files[netFiles+"netstat"] = "TcpExt: SyncookiesSent IPReversePathFilter X\nTcpExt: 5 42 7\n"
	wantFindings(t, h, "rp-filter", "notice: … rp_filter … 42 … | sysctl -w net.ipv4.conf.all.rp_filter=2")
	f.set("ipv4/conf/all/rp_filter", "2")
	wantFindings(t, h, "rp-filter", "ok: … no interface")
	f.set("ipv4/conf/all/rp_filter", "0")
	h.previousDrops = 42
	wantFindings(t, h, "rp-filter", "ok: … dropped no packets")
}

func TestDaemonCheck(t *testing.T) {
	h, _ := testHost()
	wantFindings(t, h, "daemon",
		"warning: … /run/edgeway/edgeway.sock … | edgeway config check && systemctl start edgeway")
	h.DaemonFault = fault.New("daemon", fault.Warning, "sudo edgeway doctor", "cannot query the daemon: no permission")
	wantFindings(t, h, "daemon", "warning: … no permission … | sudo edgeway doctor")
	h.DaemonFault = fault.Fault{}
	h.PID = 7
	wantFindings(t, h, "daemon", "problem: ")
	h.InForce, h.Plan.Generation = true, 5
	wantFindings(t, h, "daemon", "ok: … process 7 … plan 5")
	h.Faults = []fault.Fault{
		{ID: "backend-sync", Severity: fault.Unhealthy, Message: "late"},
		{ID: "quarantine", Severity: fault.Warning, Message: "left out"},
		{ID: "services-dead", Severity: fault.Problem, Message: "refused", Fix: "start it"},
		{ID: "ip-forward", Severity: fault.Problem},
		{ID: "source-kube", Severity: fault.Warning, Message: "away"},
	}
	wantFindings(t, h, "daemon", "unhealthy: late … | edgeway status", "problem: refused … | start it",
		"warning: left out", "warning: away")
}

func TestBackendCheck(t *testing.T) {
	h, f := testHost()
	h.Backend = proxiers.Component{Name: "a", Probe: func(context.Context) error { return nil }}
	wantFindings(t, h, "backend", "ok: ")
	h.Backend.Faults = func(_ map[string]any, served []plan.Family) []fault.Fault {
		return []fault.Fault{{Message: fmt.Sprintf("without b for %v", served), Fix: "modprobe b"}}
	}
	wantFindings(t, h, "backend", "ok: ", "warning: … [IPv4] … without b … | modprobe b")
	h.Backend.Faults = nil
	wantFindings(t, h, "systemd") // no unit is installed
	f.files["/usr/lib/systemd/system/edgeway.service"] = ""
	wantFindings(t, h, "systemd")
	h.Backend.Traits.DropIn = "a.conf"
	const folder = "/etc/systemd/system/edgeway.service.d"
	wantFindings(t, h, "systemd", "problem: … | mkdir -p "+folder+" && ln -s /usr/share/edgeway/a.conf "+folder+
		"/ && systemctl daemon-reload && systemctl restart edgeway")
	f.files[folder+"/a.conf"] = ""
	wantFindings(t, h, "systemd")
	h.Backend.Probe = func(context.Context) error { return errors.New("no program a") }
	wantFindings(t, h, "backend", "problem: … no program a … | edgeway probe")
	h.Unprivileged = true
	wantFindings(t, h, "backend", "warning: … no program a … | sudo edgeway doctor")
	h.Backend.Probe = func(context.Context) error { return fmt.Errorf("%w: no program a", proxiers.ErrUnsupported) }
	wantFindings(t, h, "backend", "problem: … no program a … | edgeway probe")
	h.ActiveBackend = proxiers.Component{Name: "b"}
	wantFindings(t, h, "backend", "warning: … a … uses b instead … | edgeway probe")
	h.Faults = []fault.Fault{{ID: "fallback", Severity: fault.Warning, Message: "uses b"}}
	wantFindings(t, h, "backend") // the check daemon reports this fault
	h.ActiveBackend, h.Faults = proxiers.Component{}, nil
	h.BackendErr, h.Unprivileged = errors.New("which one"), false
	wantFindings(t, h, "backend", "problem: … which one")
}

func TestAPIServerCheck(t *testing.T) {
	h, _ := testHost()
	wantFindings(t, h, "api-server") // no API server is configured
	contact, err := kube.Contact{
		Server: "https://192.0.2.9", Latency: 12 * time.Millisecond, SkewKnown: true,
	}, error(nil)
	h.Contact = func(context.Context) (kube.Contact, error) { return contact, err }
	wantFindings(t, h, "api-server", "ok: … https://192.0.2.9 … 12ms", "ok: … clock")
	contact.ClockSkew = -30 * time.Second
	wantFindings(t, h, "api-server", "ok: ", "warning: … 30s behind … clock … | timedatectl set-ntp true")
	contact.ClockSkew = time.Hour
	wantFindings(t, h, "api-server", "ok: ", "warning: … 1h0m0s ahead … clock")
	contact.SkewKnown, contact.Fault = false,
		fault.New("", fault.Warning, "ip route get 192.0.2.9", "connection refused")
	wantFindings(t, h, "api-server", "warning: … connection refused … | ip route get 192.0.2.9")
	h.Plan = nil
	err = &fs.PathError{Op: "open", Path: "/etc/edgeway/kubeconfig", Err: fs.ErrPermission}
	wantFindings(t, h, "api-server", "warning: … permission denied … | sudo edgeway doctor")
	err = nil
	wantFindings(t, h, "api-server", "problem: … connection refused … | ip route get 192.0.2.9")
}

// The services check judges each origin separately, because a frontend may accept connections from one origin and drop
// connections from another.
func TestServicesThatDropForSomeOrigins(t *testing.T) {
	drop, works := plan.Route{Verdict: plan.Drop}, plan.Route{Pool: plan.ClusterPool}
	clusterIP := plan.Frontend{Addr: addr("10.96.0.12"), Port: 80, Routes: [3]plan.Route{drop, drop, drop}}
	nodePort := plan.Frontend{
		Kind: plan.NodePort, Port: 30080,
		Routes: [3]plan.Route{plan.FromHost: works, plan.FromOutside: drop},
	}
	h, _ := testHost(servicePort("local", []plan.Frontend{clusterIP, nodePort}, "10.1.1.1:1"))
	wantFindings(t, h, "services", `warning: … default/local/TCP (IPv4) from other hosts and this host … | node.local_policy = "cluster"`)
	h.NodeObject = true // node.local_policy applies only to hosts without a Node object
	wantFindings(t, h, "services", "warning: … | start an endpoint on this host, or set the Service's traffic policy to Cluster")
	clusterIP.Routes = forward(plan.ClusterPool)
	h.Plan.Services[0].Frontends = []plan.Frontend{clusterIP, nodePort}
	wantFindings(t, h, "services", "warning: … default/local/TCP (IPv4) from other hosts")
}

func TestServicesCheck(t *testing.T) {
	h, _ := testHost()
	wantFindings(t, h, "services", "ok: ")
	h.Config.Source.File.Paths, h.Config.Source.Kube.Kubeconfig = []string{"/m"}, "/k"
	wantFindings(t, h, "services", `ok: … checks.tcp.sources = ["file", "kube"]`)
	h.Config.Checks.TCP.Sources = []config.CheckedSource{config.CheckedKube, config.CheckedFile}
	if got := runCheck(t, h, "services"); len(got) != 1 || strings.Contains(got[0], ";") {
		t.Errorf("where all endpoints are checked: %q", got)
	}
	h.Faults = []fault.Fault{{
		ID: planner.NoEndpointID, Severity: fault.Notice,
		Message: "the Service has no EndpointSlice", Fix: "write one",
	}}
	wantFindings(t, h, "services")
	wantFindings(t, h, "daemon", "notice: the Service has no EndpointSlice … | write one", "warning: no daemon")
}
