package nftables

import (
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

func namedPlan(namespace, name, port string) *plan.Plan {
	svc := service(name, []plan.Frontend{
		clusterIP("10.96.0.9", 80),
		{Kind: plan.NodePort, Port: 30009, Routes: toPods},
	}, endpoint("10.244.1.7:8080"))
	svc.Name.Namespace, svc.Name.Port = namespace, port
	return newPlan(testNode(), svc)
}

// nft lists each address and NodePort with the name of its Service, even if the name is long. Elements have the same
// comments whether Edgeway writes them through netlink or through nft.
func TestElementsNameTheirService(t *testing.T) {
	long := strings.Repeat("n", 63)
	newHost(t)
	p, _ := testProxier(t)
	var prev *plan.Plan
	for _, c := range []struct{ namespace, name, port, want string }{
		{"default", "web", "http", "default/web:http"},
		{"default", "web", "", "default/web"},
		{long, long, "https-metrics-1", long + "/" + long + ":"},
		{"default", `we"b; flush`, "", "default/we_b__flush"},
	} {
		next := namedPlan(c.namespace, c.name, c.port)
		apply(t, p, prev, next)
		prev = next
		byNetlink := nft(t, "list table ip edgeway")
		forceRecreate(t, p, next)
		for _, list := range []string{byNetlink, nft(t, "list table ip edgeway")} {
			for _, element := range []string{
				"10.96.0.9 . tcp . 80 comment \"" + c.want + "\" : ", "tcp . 30009 comment \"" + c.want + "\" : ",
			} {
				if !strings.Contains(list, element) {
					t.Errorf("no %q in\n%s", element, list)
				}
			}
		}
	}
}
