package ipvs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

func (s *site) writeBig(ports []string) {
	s.Helper()
	var external []string
	for i := range 150 {
		external = append(external, fmt.Sprintf("198.51.100.%d", 100+i))
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: big}
spec: {clusterIP: 10.96.0.30, ports: [%s], externalIPs: [%s]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: big, labels: {kubernetes.io/service-name: big}}
addressType: IPv4
ports: [{name: p0, port: %d}]
endpoints: [{addresses: [%s]}]
`, strings.Join(ports, ", "), strings.Join(external, ", "), endpointPort, s.pods[0].Addrs[0])
	s.must(os.WriteFile(s.file("new"), []byte(text), 0o600))
	s.must(os.Rename(s.file("new"), s.file("manifests/big.yaml")))
}

// TestRenamedPorts tests an update in which a single new port replaces all ports of a Service that has 15,100
// frontends. The daemon needs more than one transaction to remove the old frontends. The daemon must keep running and
// serve the Service.
func TestRenamedPorts(t *testing.T) {
	s := running(t)
	ports := []string{"{name: p0, port: 1000}"}
	for i := range 99 {
		ports = append(ports, fmt.Sprintf("{name: p%d, port: %d}", i+1, 1001+i))
	}
	s.writeBig(ports)
	s.waitFor(changeTimeout, expectResponse(s.client, at("198.51.100.249", 1000), plan.TCP))
	s.writeBig([]string{"{name: p0, port: 9999}"})
	for _, addr := range []string{"10.96.0.30", "198.51.100.100", "198.51.100.249"} {
		s.waitFor(changeTimeout, expectResponse(s.client, at(addr, 9999), plan.TCP))
	}
	s.must(s.verifyShop())
	if out := s.onNode("ps", "-o", "comm=", "-p", fmt.Sprint(s.cmd.Process.Pid)); !strings.Contains(out, "edgeway") {
		t.Errorf("the daemon has ended: %q", out)
	}
}
