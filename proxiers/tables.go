package proxiers

import "slices"

// The names of Edgeway's own tables of nftables. A newer version finds the tables of an older one by them.
const (
	NFTablesTable = "edgeway"
	IPVSTable     = "edgeway-ipvs"
	EBPFTable     = "edgeway-ebpf"
	// FlowtableTable has the name that KEP-4963 gives it.
	FlowtableTable = "kube-proxy-flowtable"
	// TraceTable exists while `edgeway doctor --trace` runs.
	TraceTable = "edgeway-trace"
)

// ownTables lists them by family, in nft's words.
var ownTables = map[string][]string{
	"ip":   {NFTablesTable, IPVSTable, EBPFTable},
	"ip6":  {NFTablesTable, IPVSTable, EBPFTable},
	"inet": {FlowtableTable, TraceTable},
}

// OwnTable reports whether a table of nftables is Edgeway's alone. The family is "ip", "ip6" or "inet".
func OwnTable(family, name string) bool { return slices.Contains(ownTables[family], name) }

// SharedTable is a table of nftables in which a Component has chains beside those of other programs.
type SharedTable struct {
	// Family is "ip", "ip6" or "inet".
	Family, Name string
	// Owns reports whether a chain is the Component's, by its name.
	Owns func(chain string) bool
}
