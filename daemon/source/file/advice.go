package file

import "strings"

// advice says what to do about a fault whose message says only what is wrong; empty: the message says it.
func advice(field, message string) string {
	last := field[strings.LastIndex(field, ".")+1:]
	for _, a := range [...]struct{ field, words, fix string }{
		{"", "cannot start any token", "indent with spaces, not with tabs"},
		{"", "already defined at", "remove one of the two, or separate two documents by a line with ---"},
		{"", notParsed, "correct the YAML there"},
		{"", "with apiVersion and kind", "begin with apiVersion: and kind:"},
		{"kind", "has no kind", "correct the kind or the apiVersion: kubectl api-resources has them"},
		{"kind", "it is missing", "write kind: Service, EndpointSlice, Node or ServiceCIDR"},
		{"apiVersion", "it is missing", "write v1 for a Service or Node, discovery.k8s.io/v1 for an EndpointSlice, networking.k8s.io/v1 for a ServiceCIDR"},
		{"name", "it is missing", "give the object a name"},
		{"", "the label is missing", "set it to the name of the Service"},
		{"", "unknown field;", ""},
		{"", "unknown field", "remove it: the API has no such field"},
		{"", "is not allowed here", `write what "kubectl explain" says of the field`},
		{"", "is not an IP address", "write one, as in 10.96.0.10 or fd00::10"},
		{"", "is not an address range", "write one, as in 10.96.0.0/16"},
		{"", "address is not allowed", "write another one"},
		{"", "is not allowed", "write an address that other hosts can reach"},
		{"", "second address of the family", "remove one of the two"},
		{"", "that spec.ipFamilies has", "put both lists into the same order"},
		{"", "the first address must be", "write the same address in both"},
		{"", "is not a DNS", "write a to z, 0 to 9 and -, 63 letters at most"},
		{"", "is the name of another port", "give each port its own name"},
		{"", "is there twice", "remove one of the two"},
		{"", "may have it", "remove it, or change spec.type"},
		{"", "may not have it", "remove it, or write type: NodePort"},
		{"", "an address is required", "write one, as in addresses: [10.244.1.11]"},
		{"", "is not an IPv4 address", "write it into an EndpointSlice of its own with addressType: IPv6"},
		{"", "is not an IPv6 address", "write it into an EndpointSlice of its own with addressType: IPv4"},
		{"", "cannot be served", "write the number of each port"},
		{"", "more than the 1000", "split the EndpointSlice"},
		{"", "served as a ClusterIP", "write ClusterIP, NodePort or LoadBalancer"},
		{"", "belongs to Service", "give one of the two another address or port"},
		{"", "on this host", "choose another port"},
		{"", "is not in a range of proxy.", "add its range there, if the Service may have the address"},
		{"", "is in a range of proxy.", "remove the endpoint, or the range"},
		{"", "API server's address", "choose another address"},
	} {
		if (a.field == "" || a.field == last) && strings.Contains(message, a.words) {
			return a.fix
		}
	}
	return ""
}
