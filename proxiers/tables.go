package proxiers

import "slices"

// These constants are the names of Edgeway's own nftables tables. A newer version of Edgeway uses these names to find
// the tables of an older version.
const (
	NFTablesTable = "edgeway"
	IPVSTable     = "edgeway-ipvs"
	EBPFTable     = "edgeway-ebpf"
	// FlowtableTable is the table name that KEP-4963 specifies.
	FlowtableTable = "kube-proxy-flowtable"
	// TraceTable is the name of the table that exists while `edgeway doctor --trace` is running.
	TraceTable = "edgeway-trace"
)

// ownTables lists Edgeway's own nftables tables by family.
var ownTables = map[string][]string{
	"ip":   {NFTablesTable, IPVSTable, EBPFTable},
	"ip6":  {NFTablesTable, IPVSTable, EBPFTable},
	"inet": {FlowtableTable, TraceTable},
}

// IsOwnTable reports whether an nftables table belongs to Edgeway alone. The argument family is "ip", "ip6" or "inet".
func IsOwnTable(family, name string) bool { return slices.Contains(ownTables[family], name) }

// SharedTable describes an nftables table that a Component shares with other programs.
type SharedTable struct {
	Family, Name string
	// Owns reports whether the chain with the given name belongs to the Component.
	Owns func(chain string) bool
}
