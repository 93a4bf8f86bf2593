package proxiers

import "slices"

// The names of Edgeway's own nftables tables. A newer version of Edgeway finds the tables of an older version by these
// names.
const (
	NFTablesTable = "edgeway"
	IPVSTable     = "edgeway-ipvs"
	EBPFTable     = "edgeway-ebpf"
	// FlowtableTable is the name that KEP-4963 specifies.
	FlowtableTable = "kube-proxy-flowtable"
	// TraceTable exists while `edgeway doctor --trace` runs.
	TraceTable = "edgeway-trace"
)

// ownTables lists Edgeway's own tables by nft family.
var ownTables = map[string][]string{
	"ip":   {NFTablesTable, IPVSTable, EBPFTable},
	"ip6":  {NFTablesTable, IPVSTable, EBPFTable},
	"inet": {FlowtableTable, TraceTable},
}

// OwnTable reports whether an nftables table belongs to Edgeway alone. The family is "ip", "ip6" or "inet".
func OwnTable(family, name string) bool { return slices.Contains(ownTables[family], name) }

// SharedTable is an nftables table in which both a Component and other programs have chains.
type SharedTable struct {
	Family, Name string
	// Owns reports whether the chain with this name belongs to the Component.
	Owns func(chain string) bool
}
