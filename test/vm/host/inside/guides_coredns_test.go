package inside

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
)

const apiServer = "127.0.0.1:6443"

// lists maps API paths to the responses to list requests: the Service web, and the headless Service db with one
// endpoint.
var lists = map[string]string{
	"/api/v1/namespaces": `{"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [
{"metadata": {"name": "default", "uid": "1", "resourceVersion": "1"}}]}`,
	"/api/v1/services": `{"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [
{"metadata": {"name": "web", "namespace": "default", "uid": "2", "resourceVersion": "2"},
 "spec": {"clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "type": "ClusterIP", "ports": [{"port": 80}]}},
{"metadata": {"name": "db", "namespace": "default", "uid": "3", "resourceVersion": "3"},
 "spec": {"clusterIP": "None", "clusterIPs": ["None"], "type": "ClusterIP", "ports": [{"port": 80}]}}]}`,
	"/apis/discovery.k8s.io/v1/endpointslices": `{"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
"metadata": {"resourceVersion": "9"}, "items": [
{"metadata": {"name": "db-1", "namespace": "default", "uid": "4", "resourceVersion": "4",
 "labels": {"kubernetes.io/service-name": "db"}},
 "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.244.1.11"], "conditions": {"ready": true}}]}]}`,
}

// serveLists starts an API server that responds to list requests from the map lists, and never sends a watch event.
// Like an API server without the WatchList feature, the server rejects watch requests that set sendInitialEvents.
func serveLists(h *host) *http.Server {
	h.Helper()
	l, err := (&net.ListenConfig{}).Listen(h.Context(), "tcp", apiServer)
	if err != nil {
		h.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: eventTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			list, ok := lists[r.URL.Path]
			w.Header().Set("Content-Type", "application/json")
			switch watch := r.URL.Query().Get("watch"); {
			case !ok:
				http.NotFound(w, r)
			case r.URL.Query().Has("sendInitialEvents"):
				w.WriteHeader(http.StatusUnprocessableEntity)
				_ = json.NewEncoder(w).Encode(map[string]any{
					"kind": "Status", "apiVersion": "v1", "status": "Failure",
					"reason": "Invalid", "code": http.StatusUnprocessableEntity,
				})
			case watch == "true" || watch == "1":
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			default:
				_, _ = w.Write([]byte(list))
			}
		}),
	}
	h.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }()
	return server
}

// besideCoreDNS tests that CoreDNS resolves names while the API server is unreachable, and that a restarted CoreDNS
// resolves names as soon as the API server responds.
func besideCoreDNS(h *host) {
	const headless, name = "db.default.svc.cluster.local", "web.default.svc.cluster.local"
	query := func(name string) (string, int) {
		h.Helper()
		h.run("resolvectl", "flush-caches")
		return h.try("resolvectl", "query", "--legend=no", name)
	}
	resolves := func() {
		h.Helper()
		for asked, addr := range map[string]string{name: "10.96.0.20", headless: "10.244.1.11"} {
			h.waitFor(eventTimeout, func() error {
				if out, code := query(asked); code != 0 || !strings.Contains(out, ": "+addr) {
					return fmt.Errorf("%s: exit code %d: %s", asked, code, out)
				}
				return nil
			})
		}
	}
	h.write("/etc/coredns/kubeconfig", `{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "http://`+apiServer+`"}}], users: [{name: u, user: {token: a}}]}`)
	h.run("chmod", "600", "/etc/coredns/kubeconfig")
	h.stopAtEnd("cluster-dns", "coredns")
	h.followRecipe("hosts.md", "systemd-resolved")
	if out, code := query(name); code == 0 {
		h.Fatalf("the name is known without the recipe: %s", out)
	}
	api := serveLists(h)

	h.followRecipe("hosts.md", "CoreDNS")
	resolves()
	if err := api.Close(); err != nil {
		h.Error(err)
	}
	resolves()
	h.run("systemctl", "restart", "coredns")
	h.becomes("coredns", "active")
	if out, code := query(name); code == 0 {
		h.Errorf("CoreDNS knows a name without the API server: %s", out)
	}
	serveLists(h)
	resolves()
}
