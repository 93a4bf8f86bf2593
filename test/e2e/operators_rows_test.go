package e2e

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// workerAddr is ep1's address on the network that it shares with the host.
const workerAddr = "198.51.100.21"

func onHost(commands ...string) func(*operatorRow) {
	return func(r *operatorRow) {
		r.t.Helper()
		for _, c := range commands {
			r.onNode("sh", "-ec", c)
		}
	}
}

func (r *operatorRow) extra(settings string) {
	r.t.Helper()
	r.must(os.WriteFile(filepath.Join(r.dir, "conf.d", "extra.toml"), []byte(settings+"\n"), 0o600))
}

func setting(r *operatorRow, f finding) {
	r.t.Helper()
	r.applySetting(f.Fix)
}

// fixOnOtherHost returns a function that runs a fix and then calls do to correct the fault on another host. The output
// of the fix must show that another host is at fault.
func fixOnOtherHost(words string, do func(*operatorRow)) func(*operatorRow, finding) {
	return func(r *operatorRow, f finding) {
		r.t.Helper()
		if out := r.runFix(f); !strings.Contains(out, words) {
			r.wrongly("fix %q does not show %q:\n%s", f.Fix, words, out)
		}
		do(r)
	}
}

// A network namespace cannot reproduce every fault, so the tests in test/vm/host cover ufw and firewalld.
func operatorRows() []*operatorRow {
	rows := append(routeRows(), ruleRows()...)
	rows = append(rows, endpointRows()...)
	return append(rows, apiServerRows()...)
}

func routeRows() []*operatorRow {
	return []*operatorRow{
		{
			name: "no route to pods", id: "route-endpoints", severity: "problem", words: []string{ep1Addr},
			prepare: func(r *operatorRow) {
				r.on(r.ep1, "ip", "addr", "add", workerAddr+"/32", "dev", "eth0")
				r.onNode("sh", "-ec", "ip route add "+workerAddr+" dev ep1; ip neigh add "+workerAddr+
					" dev ep1 lladdr $(ip neigh show "+ep1Addr+
					" | sed 's/.*lladdr \\([0-9a-f:]*\\).*/\\1/') nud permanent")
				r.extra("proxy.nodeport_addresses = [\"192.0.2.0/24\"]")
				r.router = workerAddr
			},
			causeFault: onHost("ip route del default", "ip route del "+ep1Addr),
		},
		{
			name: "pods behind a default gateway that does not know them", id: "route-endpoints", severity: "notice",
			words: []string{"via 192.0.2.1 on eth0", "10.244.1.0/24"},
			prepare: func(r *operatorRow) {
				r.on(r.net.Gateway, "nft", "table ip off { chain c { type filter hook forward priority 0; policy drop; }; "+
					"chain d { type filter hook prerouting priority 0; ip daddr 10.244.0.0/16 drop; }; }")
			},
			causeFault: onHost("ip route del " + ep1Addr),
			applyFix: fixOnOtherHost("fix: ip route get "+ep1Addr+"  # then check the route at the router",
				func(r *operatorRow) {
					r.onNode("ip", "route", "add", ep1Addr, "dev", "ep1")
				}),
		},
		{
			name: "no default route", id: "nodeport-addresses", severity: "warning", words: []string{"default route"},
			causeFault: func(r *operatorRow) {
				r.onNode("ip", "route", "del", "default")
				r.waitFor(longTimeout, isUnanswered(r.client, r.nodePort))
			},
			applyFix: setting,
		},
		{
			name: "no default route, and none of Edgeway's", id: "route-services", severity: "problem", fromHost: true,
			words: []string{"the Service range 10.96.0.0/12 (network is unreachable)"},
			prepare: func(r *operatorRow) {
				r.extra("node.addresses = [\"192.0.2.10\"]\nroutes.services = \"never\"")
			},
			causeFault: onHost("ip route del default"),
		},
		{
			name: "strict rp_filter", id: "rp-filter", severity: "notice", words: []string{"strict rp_filter"}, fromHost: true,
			prepare: (*operatorRow).redirectResponses, causeFault: onHost("sysctl -qw net.ipv4.conf.all.rp_filter=1"),
		},
	}
}

// redirectResponses redirects ep1's responses to a second link.
func (r *operatorRow) redirectResponses() {
	r.t.Helper()
	const mac = "02:00:00:00:00:0a"
	r.onNode("ip", "link", "add", "second", "address", mac, "type", "veth",
		"peer", "name", "eth1", "netns", r.ep1.Netns)
	r.onNode("sh", "-ec", "ip addr add 169.254.1.1/32 dev second; ip link set second up")
	r.onNode("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.second.rp_filter=0")
	r.on(r.ep1, "sh", "-ec", "ip link set eth1 up; ip neigh add 169.254.1.1 dev eth1 lladdr "+mac+
		"; ip route replace default via 169.254.1.1 dev eth1 onlink")
}

func ruleRows() []*operatorRow {
	const foo = "nft 'table inet foo { chain c { type filter hook "
	// local moves the API server's address to the host itself, so that firewall rules do not affect the daemon's
	// connections to the API server.
	local := func(r *operatorRow) {
		r.link = newLinkFrom(r.lab, r.node)
		r.configure("")
	}
	return []*operatorRow{
		{
			name: "FORWARD dropped by nft", id: "firewall", severity: "problem",
			words:      []string{"the policy drop of chain c (inet table foo) drops forwarded connections"},
			causeFault: onHost(foo + "forward priority 10; policy drop; ct state established,related accept; }; }'"),
		},
		{
			name: "FORWARD dropped by iptables", id: "firewall", severity: "problem",
			words:      []string{"the policy drop of chain FORWARD (table filter of iptables-nft)"},
			causeFault: onHost("iptables-nft -P FORWARD DROP"),
		},
		{
			name: "INPUT drops the answers", id: "firewall", severity: "problem", fromHost: true, prepare: local,
			words:      []string{"the policy drop of chain c (inet table foo) drops the answers to connections from this host"},
			causeFault: onHost(foo + "input priority 0; policy drop; iifname \"lo\" accept; tcp dport 22 accept; }; }'"),
		},
		{
			name: "OUTPUT rejects", id: "firewall", severity: "problem", fromHost: true, prepare: local,
			words: []string{"the rule 'reject", "drops connections from this host"},
			causeFault: onHost(foo + "output priority 0; oifname \"lo\" accept; " +
				"ct state established,related accept; reject; }; }'"),
		},
		{
			name: "rules flushed", stillWorks: true, doctorID: "daemon", // Edgeway repairs the rules
			causeFault: func(r *operatorRow) {
				r.onNode("nft", "flush", "ruleset")
				r.named = r.waitFor(longTimeout, func() error {
					s, err := r.status()
					if err == nil && s.repairs() != 1 {
						err = fmt.Errorf("edgeway status counts %d repairs", s.repairs())
					}
					return errors.Join(err, r.works())
				})
			},
			applyFix: func(*operatorRow, finding) {},
		},
		{
			name: "another kube-proxy's DNAT in front", id: "firewall", severity: "problem", fromHost: true,
			words: []string{"kube-proxy has rules on this host (ip table kube-proxy)"},
			causeFault: func(r *operatorRow) {
				r.onNode("nft", "table ip kube-proxy { chain services { type nat hook output priority -110; ip daddr "+
					netip.MustParseAddrPort(r.clusterIP).Addr().String()+" dnat to 10.244.99.99; }; }")
			},
		},
	}
}

func endpointRows() []*operatorRow {
	dies := func(r *operatorRow) { r.lab.kill(r.ep1, resetRules) }
	starts := func(r *operatorRow, f finding) {
		if !strings.Contains(f.Message+f.Fix, ep1Addr+":8080") {
			r.wrongly("the endpoint is not named: %+v", f)
		}
		r.lab.revive(r.ep1)
	}
	return []*operatorRow{
		{
			name: "endpoint dead, without checks", doctorID: "connect", doctorArgs: []string{"--connect"},
			causeFault: dies, applyFix: starts,
		},
		{
			name: "endpoint dead, with checks", id: "services-dead", severity: "problem",
			words:   []string{ep1Addr + ":8080"},
			prepare: func(r *operatorRow) { r.extra("checks.tcp.sources = [\"kube\"]") },
			causeFault: func(r *operatorRow) {
				dies(r)
				r.waitFor(operatorLimit, r.commandPrints([]string{"status"}, "services-dead"))
			},
			applyFix: starts,
		},
	}
}

func apiServerRows() []*operatorRow {
	const id, warning = "source-kube", "warning"
	return []*operatorRow{
		{
			name: "API server away", id: id, severity: warning,
			words: []string{"connection refused"}, stillWorks: true, doctorID: "api-server",
			causeFault: func(r *operatorRow) {
				r.on(r.net.Gateway, "nft", "table ip away { chain c { type filter hook input priority 0; tcp dport "+
					fmt.Sprint(r.link.port())+" reject with tcp reset; }; }")
				r.link.cut()
				r.link.restore()
			},
			applyFix: fixOnOtherHost("dev eth0", func(r *operatorRow) {
				r.on(r.net.Gateway, "nft", "delete table ip away")
			}),
		},
		{
			name: "token expired", id: "credential-expiry", severity: warning,
			words: []string{"The token expired at"}, stillWorks: true, doctorID: "api-server",
			causeFault: func(r *operatorRow) {
				r.access()
				part := base64.RawURLEncoding.EncodeToString
				token := part([]byte(`{"alg":"none"}`)) + "." + part([]byte(`{"iat":1,"exp":1700000000}`)) + ".x"
				r.replaceUser(&api.AuthInfo{Token: token})
			},
			applyFix: func(r *operatorRow, f finding) {
				r.replaceUser(&api.AuthInfo{Token: strings.TrimSpace(r.kubectl(f))})
			},
		},
		{
			name: "wrong CA", id: id, severity: warning,
			words: []string{"unknown authority"}, stillWorks: true, doctorID: "api-server",
			causeFault: func(r *operatorRow) {
				s := httptest.NewTLSServer(nil)
				s.Close()
				r.replaceCluster(func(c *api.Cluster) {
					c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{
						Type:  "CERTIFICATE",
						Bytes: s.Certificate().Raw,
					})
				})
			},
			applyFix: func(r *operatorRow, f finding) {
				r.publishRootCA()
				ca, err := base64.StdEncoding.DecodeString(r.kubectl(f))
				r.must(err)
				r.replaceCluster(func(c *api.Cluster) { c.CertificateAuthorityData = ca })
			},
		},
		{
			name: "ServiceCIDRs forbidden", id: "service-ranges", severity: warning,
			words: []string{"servicecidrs", "forbidden"}, stillWorks: true,
			causeFault: func(r *operatorRow) {
				r.access()
				r.kubectl(finding{Fix: `kubectl patch clusterrole edgeway --type=json -p '[{"op":"remove","path":"/rules/2"}]'`})
				token := r.kubectl(finding{Fix: "kubectl -n kube-system create token edgeway"})
				r.replaceUser(&api.AuthInfo{Token: strings.TrimSpace(token)})
			},
			applyFix: func(r *operatorRow, f finding) { r.kubectl(f) },
		},
		{
			name: "server named by a Service's name", id: id, severity: warning,
			words: []string{"belongs to a Service"}, doctorID: "api-server",
			prepare: func(r *operatorRow) {
				d, _ := r.newDNSDaemon(dnsAddr)
				*r.daemon = *d
			},
			causeFault: func(r *operatorRow) { // the host has never reached the API server
				r.stop()
				r.edgeway("cleanup")
				r.must(os.RemoveAll(r.stateDir()))
				r.replaceCluster(func(c *api.Cluster) {
					c.Server = strings.Replace(c.Server, apiName, "kubernetes.default.svc", 1)
				})
				r.daemon.start()
				r.waitFor(longTimeout, r.logged("fault began", "fault=source-kube"))
			},
			applyFix: func(r *operatorRow, f finding) {
				if out := r.kubectl(f); out != sharedState.cluster.Server() {
					r.wrongly("%q does not show the API server's address:\n%s", f.Fix, out)
				}
				r.replaceCluster(func(c *api.Cluster) {
					c.Server = strings.Replace(c.Server, "kubernetes.default.svc", apiAddr, 1)
				})
			},
		},
		{
			name: "clock an hour off", id: "clock", severity: warning,
			words: []string{"1h0m0s ahead"}, stillWorks: true,
			prepare: func(r *operatorRow) {
				r.proxy = newFaultProxy(r.lab)
				r.proxy.kubeconfig(r.kubeconfigFile())
			},
			causeFault: func(r *operatorRow) { r.proxy.setFault(&fault{answer: backdateResponse}) },
			applyFix: func(r *operatorRow, f finding) { // network namespaces share one clock
				if f.Fix != "timedatectl set-ntp true" {
					r.wrongly("the fix is %q", f.Fix)
				}
				r.proxy.setFault(nil)
				r.proxy.server.CloseClientConnections()
			},
		},
		{
			name: "disk full", id: "last-known", severity: warning, words: []string{"is full"}, stillWorks: true,
			prepare: func(r *operatorRow) {
				r.must(os.MkdirAll(r.stateDir(), 0o700))
				r.must(exec.CommandContext(r.t.Context(), "mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs",
					r.stateDir()).Run())
				r.t.Cleanup(func() { _ = exec.CommandContext(cleanupContext(), "umount", "-l", r.stateDir()).Run() })
			},
			causeFault: func(r *operatorRow) {
				r.onNode("sh", "-c", "dd if=/dev/zero of="+r.stateDir()+"/big 2>/dev/null || true")
				r.n.createService("another", nil)
				r.waitFor(longTimeout, r.logged("fault began", "fault=last-known"))
			},
			applyFix: fixOnOtherHost("100%", func(r *operatorRow) {
				r.must(os.Remove(filepath.Join(r.stateDir(), "big")))
			}),
		},
	}
}

// backdateResponse forwards the API server's response with a Date header that is one hour in the past.
func backdateResponse(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(dated{w}, r)
}

type dated struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController find the wrapped writer.
func (d dated) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d dated) WriteHeader(code int) {
	d.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	d.ResponseWriter.WriteHeader(code)
}

func (d *daemon) replaceCluster(change func(*api.Cluster)) {
	d.t.Helper()
	config, err := clientcmd.LoadFromFile(d.kubeconfigFile())
	d.must(err)
	change(config.Clusters[config.Contexts[config.CurrentContext].Cluster])
	d.must(clientcmd.WriteToFile(*config, d.kubeconfigFile()))
}

func (r *operatorRow) access() {
	r.t.Helper()
	r.kubectl(finding{Fix: "kubectl apply -f /usr/share/edgeway/examples/kubernetes-access.yaml"})
}
