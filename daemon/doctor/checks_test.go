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
	"edgeway/daemon/source"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func TestTableOfConnections(t *testing.T) {
	h, f := testHost()
	wants(t, h, "conntrack") // not loaded
	f.set("netfilter/nf_conntrack_max", "1000")
	for count, want := range map[string]string{
		"10":  "ok: the table of connections has 10 entries, the limit is 1000",
		"760": "warning: … 76 % of its limit … | sysctl -w net.netfilter.nf_conntrack_max=2000",
		"960": "problem: … full to 96 % … | sysctl -w net.netfilter.nf_conntrack_max=2000",
	} {
		f.set("netfilter/nf_conntrack_count", count)
		wants(t, h, "conntrack", want)
	}
	f.set("netfilter/nf_conntrack_count", "10")
	f.files[netFiles+"stat/nf_conntrack"] = "entries  searched insert insert_failed drop early_drop\n0000000a  00000000 00000000 00000009 00000000 00000003\n0000000a  00000000 00000000 00000000 0000000b 00000000\n"
	wants(t, h, "conntrack", "warning: … 11")
}

func TestReversePathFilter(t *testing.T) {
	h, f := testHost()
	f.links = []string{"eth0", "eth1"}
	f.set("ipv4/conf/all/rp_filter", "0")
	f.set("ipv4/conf/eth0/rp_filter", "2")
	f.set("ipv4/conf/eth1/rp_filter", "1")
	f.files[netFiles+"netstat"] = "TcpExt: SyncookiesSent IPReversePathFilter X\nTcpExt: 5 0 7\nIpExt: A B\nIpExt: 1 2\n"
	wants(t, h, "rp-filter", "ok: … dropped nothing")
	f.files[netFiles+"netstat"] = "TcpExt: SyncookiesSent IPReversePathFilter X\nTcpExt: 5 42 7\n"
	wants(t, h, "rp-filter", "notice: … rp_filter … eth1 … 42 … | sysctl -w net.ipv4.conf.all.rp_filter=2")
	f.set("ipv4/conf/all/rp_filter", "2")
	wants(t, h, "rp-filter", "ok: … no interface")
	f.set("ipv4/conf/all/rp_filter", "0")
	h.filteredBefore = 42
	wants(t, h, "rp-filter", "ok: … dropped nothing")
}

func TestTheDaemonsOwnConditions(t *testing.T) {
	h, _ := testHost()
	wants(t, h, "daemon", "warning: … /run/edgeway/edgeway.sock … | systemctl start edgeway")
	h.Unasked = fault.New("daemon", fault.Warning, "sudo edgeway doctor", "the daemon cannot be asked: no permission")
	wants(t, h, "daemon", "warning: … no permission … | sudo edgeway doctor") // and not that none answers
	h.Unasked = fault.Fault{}
	h.PID = 7
	wants(t, h, "daemon", "problem: ")
	h.InForce, h.Plan.Generation = true, 5
	wants(t, h, "daemon", "ok: … process 7 … plan 5")
	h.Faults = []fault.Fault{
		{ID: "backend-sync", Severity: fault.Unhealthy, Message: "late"},
		{ID: "quarantine", Severity: fault.Warning, Message: "left out"},
		{ID: "services-dead", Severity: fault.Problem, Message: "refused", Fix: "start it"},
		{ID: "ip-forward", Severity: fault.Problem},
		{ID: "source-kube", Severity: fault.Warning}, // looked at anew
		{ID: planner.NoEndpointID, Severity: fault.Notice},
	}
	wants(t, h, "daemon", "unhealthy: late … | edgeway status", "problem: refused … | start it", "warning: left out")
}

func TestBackendAndItsDropIn(t *testing.T) {
	h, f := testHost()
	h.Backend = proxiers.Component{Name: "a", Probe: func(context.Context) error { return nil }}
	wants(t, h, "backend", "ok: ")
	h.Backend.Faults = func(_ map[string]any, served []plan.Family) []fault.Fault {
		return []fault.Fault{{Message: fmt.Sprintf("without b for %v", served), Fix: "modprobe b"}}
	}
	wants(t, h, "backend", "ok: ", "warning: … [IPv4] … without b … | modprobe b")
	h.Backend.Faults = nil
	wants(t, h, "systemd") // no unit
	f.files["/usr/lib/systemd/system/edgeway.service"] = ""
	wants(t, h, "systemd", "ok: … drop-in")
	h.Backend.Traits.DropIn = "a.conf"
	const folder = "/etc/systemd/system/edgeway.service.d"
	wants(t, h, "systemd", "problem: … | mkdir -p "+folder+" && ln -s /usr/share/edgeway/a.conf "+folder+"/ && systemctl daemon-reload && systemctl restart edgeway")
	f.files[folder+"/a.conf"] = ""
	wants(t, h, "systemd", "ok: ")
	h.Backend.Probe = func(context.Context) error { return errors.New("no program a") }
	wants(t, h, "backend", "problem: … no program a … | edgeway probe")
	h.Unprivileged = true
	wants(t, h, "backend", "warning: … no program a … | sudo edgeway doctor")
	h.Backend.Probe = func(context.Context) error { return fmt.Errorf("%w: no program a", proxiers.ErrUnsupported) }
	wants(t, h, "backend", "problem: … no program a … | edgeway probe")
	h.BackendErr, h.Unprivileged = errors.New("which one"), false
	wants(t, h, "backend", "problem: … which one")
}

func TestAPIServerAndClock(t *testing.T) {
	h, _ := testHost()
	wants(t, h, "api-server") // none is configured
	contact, err := kube.Contact{Server: "https://192.0.2.9", Took: 12 * time.Millisecond, Dated: true}, error(nil)
	h.Contact = func(context.Context) (kube.Contact, error) { return contact, err }
	wants(t, h, "api-server", "ok: … https://192.0.2.9 … 12ms", "ok: … clock")
	contact.Ahead = -30 * time.Second
	wants(t, h, "api-server", "ok: ", "warning: … 30s behind … clock … | timedatectl set-ntp true")
	contact.Ahead = time.Hour
	wants(t, h, "api-server", "ok: ", "problem: … 1h0m0s ahead … clock")
	contact.Dated, contact.Fix, err = false, "ip route get 192.0.2.9", errors.New("connection refused")
	wants(t, h, "api-server", "warning: … connection refused … | ip route get 192.0.2.9")
	h.Plan = nil
	refused := err
	err = &fs.PathError{Op: "open", Path: "/etc/edgeway/kubeconfig", Err: fs.ErrPermission}
	wants(t, h, "api-server", "warning: … permission denied … | sudo edgeway doctor")
	err = refused
	wants(t, h, "api-server", "problem: … connection refused … | ip route get 192.0.2.9")
}

func TestCredentials(t *testing.T) {
	h, _ := testHost()
	h.Config.Source.Kube.Kubeconfig = "/etc/edgeway/kubeconfig"
	var faults []fault.Fault
	var err error
	h.Credentials = func() ([]fault.Fault, error) { return faults, err }
	wants(t, h, "credentials", "ok: ")
	faults = []fault.Fault{
		{Severity: fault.Warning, Message: "k can be written by every user", Fix: "chmod go-w k"},
		{Severity: fault.Warning, Message: "The token expires at 2030", Fix: "kubectl"},
	}
	wants(t, h, "credentials", "warning: … k can be written … | chmod go-w k", "warning: … 2030 … | kubectl")
	err = &fs.PathError{Op: "open", Path: "/etc/edgeway/kubeconfig", Err: fs.ErrPermission}
	wants(t, h, "credentials", "warning: … permission denied … | sudo edgeway doctor")
	err = errors.New("it does not parse")
	wants(t, h, "credentials", "problem: … it does not parse")
}

func TestSourcesAndTheLastKnownState(t *testing.T) {
	h, _ := testHost()
	h.Sources = []Source{{"file", source.Status{Synced: true}}, {"kube", source.Status{Err: "refused", Fix: "ip route"}}, {"lastknown", source.Status{Synced: true, Err: "disk full"}}}
	wants(t, h, "sources", "ok: ", "warning: … kube … | ip route", "warning: … disk full … lastknown")
	h.Plan = nil
	h.Sources = h.Sources[1:2]
	h.Sources[0].Err = ""
	wants(t, h, "sources", "problem: … kube")

	wants(t, h, "last-known") // none is kept
	saved, err := time.Now().Add(-time.Minute), error(nil)
	at := func() (time.Time, error) { return saved, err }
	h.Saved = []Saved{{"the API server", "/s", true, at}, {"the manifests", "/s/manifests", false, at}}
	wants(t, h, "last-known", "ok: … /s … 1m0s", "ok: … /s/manifests … 1m0s")
	saved = time.Now().Add(-50 * time.Hour)
	wants(t, h, "last-known", "warning: … 50h0m0s", "ok: … 50h0m0s") // manifests need not change
	for want, fault := range map[string]error{"warning: … last-known": fs.ErrNotExist, "warning: ": fs.ErrPermission, "warning: … damaged": errors.New("damaged")} {
		err = fault
		wants(t, h, "last-known", want+" … of the API server", want+" … of the manifests")
	}
}

// Each origin is judged by itself, as explain does: one way that works hides no other one that drops.
func TestServicesThatDropForSome(t *testing.T) {
	drop, works := plan.Route{Verdict: plan.Drop}, plan.Route{Pool: plan.ClusterPool}
	clusterIP := plan.Frontend{Addr: addr("10.96.0.12"), Port: 80, Routes: [3]plan.Route{drop, drop, drop}}
	nodePort := plan.Frontend{Kind: plan.NodePort, Port: 30080, Routes: [3]plan.Route{plan.FromHost: works, plan.FromOutside: drop}}
	h, _ := testHost(servicePort("local", []plan.Frontend{clusterIP, nodePort}, "10.1.1.1:1"))
	wants(t, h, "services", `warning: … default/local/TCP (IPv4) from other hosts and this host are dropped … | node.local_policy = "cluster"`)
	h.NodeObject = true // node.local_policy is for hosts that have none
	wants(t, h, "services", "warning: … | have an endpoint on this host, or give the Service the traffic policy Cluster")
	clusterIP.Routes = forward(plan.ClusterPool)
	h.Plan.Services[0].Frontends = []plan.Frontend{clusterIP, nodePort}
	wants(t, h, "services", "warning: … default/local/TCP (IPv4) from other hosts are dropped")
}

func TestServicesWithoutEndpoints(t *testing.T) {
	rejected := plan.Frontend{Addr: addr("10.96.0.11"), Port: 80, Routes: [3]plan.Route{{Verdict: plan.Reject}, {Verdict: plan.Reject}, {Verdict: plan.Reject}}}
	dropped := plan.Frontend{Addr: addr("10.96.0.12"), Port: 80, Routes: [3]plan.Route{{Verdict: plan.Drop}, {Verdict: plan.Drop}, {Verdict: plan.Drop}}}
	h, _ := testHost()
	wants(t, h, "services", "ok: ")
	h.Config.Source.File.Paths, h.Config.Source.Kube.Kubeconfig = []string{"/m"}, "/k"
	wants(t, h, "services", `ok: … checks.tcp.sources = ["file", "kube"]`)
	h.Config.Checks.TCP.Sources = []config.CheckedSource{config.CheckedKube, config.CheckedFile}
	if got := run(t, h, "services"); len(got) != 1 || strings.Contains(got[0], ";") {
		t.Errorf("where all endpoints are checked: %q", got)
	}
	idle, local := servicePort("idle", []plan.Frontend{rejected}, "10.1.1.1:1"), servicePort("local", []plan.Frontend{dropped}, "10.1.1.1:1")
	h.Plan.Services = append(h.Plan.Services, idle, local)
	h.Services = []*tracker.Service{service("idle", ""), service("web", "", "10.244.1.11")}
	h.Orphans = []string{"EndpointSlice default/x of Service y"}
	wants(t, h, "services",
		"notice: … default/idle/TCP (IPv4) … rejected … EndpointSlice idle-1",
		`warning: … default/local/TCP (IPv4) … dropped … Local … | node.local_policy = "cluster"`,
		"warning: … EndpointSlice default/x … | correct the label kubernetes.io/service-name of the EndpointSlice, or give that Service a clusterIP")
	h.Services = nil // they are not known
	h.Plan.Services, h.Orphans = h.Plan.Services[1:2], nil
	for range 30 {
		h.Plan.Services = append(h.Plan.Services, idle)
	}
	got := run(t, h, "services")
	if len(got) != maxNetworks+1 || !strings.Contains(got[maxNetworks], "21 more Services without an endpoint") {
		t.Errorf("%d findings: %s", len(got), strings.Join(got, "\n"))
	}
}
