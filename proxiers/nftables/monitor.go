package nftables

import (
	"slices"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// newMonitor makes one that notices changes of the table of this name in these families.
func newMonitor(table string, families []plan.Family, notify func(string)) (*nfnetlink.Monitor, error) {
	numbers := make([]uint8, 0, len(families))
	for _, f := range families {
		numbers = append(numbers, nfnetlink.Family(f))
	}
	return nfnetlink.NewMonitor(nfnetlink.MonitorOptions{
		Notify: notify,
		Concerns: func(m nfnetlink.Message) string {
			if slices.Contains(numbers, m.Family) && string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, nfnetlink.AttrTable))) == table {
				return "the table"
			}
			return ""
		},
	})
}
