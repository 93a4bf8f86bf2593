package inside

import (
	"fmt"
	"strings"
)

// Manifest returns the manifest of a dual-stack Service with port 80, a NodePort, and both endpoints.
func Manifest(name, ip4, ip6 string, nodePort int) string {
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  type: NodePort
  clusterIP: %[2]s
  clusterIPs: [%[2]s, "%[3]s"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
    - {name: http, protocol: TCP, port: 80, targetPort: 8080, nodePort: %[4]d}
`, name, ip4, ip6, nodePort)
	for _, family := range [][]string{
		{"IPv4", "10.244.1.11", "10.244.2.12"},
		{"IPv6", "fd00:244:1::11", "fd00:244:2::12"},
	} {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s-%[2]s
  namespace: default
  labels: {kubernetes.io/service-name: %[1]s}
addressType: %[3]s
ports:
  - {name: http, protocol: TCP, port: 8080}
endpoints:
  - {addresses: ["%[4]s"], conditions: {ready: true}}
  - {addresses: ["%[5]s"], conditions: {ready: true}}
`, name, strings.ToLower(family[0]), family[0], family[1], family[2])
	}
	return text
}
