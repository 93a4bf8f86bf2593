package netlab

import (
	"strings"
	"testing"
)

const foreignRules = `table inet foreign {
	chain INPUT {
		type filter hook input priority filter; policy accept;
	}
}
`

func TestEmptyIptablesTablesAreIgnored(t *testing.T) {
	const empty = `table ip nat {
	chain PREROUTING {
		type nat hook prerouting priority dstnat; policy accept;
	}

	chain OUTPUT {
		type nat hook output priority -100; policy accept;
	}
}
# Warning: table ip6 filter is managed by iptables-nft, do not touch!
table ip6 filter {
	chain FORWARD {
		type filter hook forward priority filter; policy accept;
	}
}
table ip mangle {
	chain OUTPUT {
		type route hook output priority mangle; policy accept;
	}
}
`
	if got := WithoutEmptyTables("# list\n" + empty + foreignRules); got != "# list\n"+foreignRules {
		t.Errorf("of empty tables and another program's is left:\n%s", got)
	}
	for _, c := range []struct{ name, old, different string }{
		{"a rule", "policy accept;\n\t}\n\n", "policy accept;\n\t\ttcp dport 1 accept\n\t}\n\n"},
		{"a policy", "priority dstnat; policy accept", "priority dstnat; policy drop"},
		{"a chain of its own", "chain OUTPUT {\n\t\ttype nat hook output priority -100; policy accept;\n\t}", "chain KUBE-SERVICES {\n\t}"},
		{"a base chain of its own", "chain OUTPUT", "chain edgeway"},
		{"a set", "chain PREROUTING", "set s {\n\t\ttype ipv4_addr\n\t}\n\n\tchain PREROUTING"},
		{"another table", "table ip nat", "table ip edgeway"},
		{"another family", "table ip nat", "table inet nat"},
	} {
		text := strings.Replace(empty, c.old, c.different, 1)
		if got := WithoutEmptyTables(text); text == empty ||
			!strings.Contains(got, strings.SplitN(c.different, "\n", 2)[0]) {
			t.Errorf("%s: left out, too; what stays is %q", c.name, got)
		}
	}
}
