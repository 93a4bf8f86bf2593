package firewall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/doctor/nft"
)

// needful lists nft's words for what must see every packet of a connection, or keeps it from the flowtable. A limit on
// what a rule logs does not count.
var needful = []string{
	"limit rate", "quota", "ct helper", "tproxy", "queue", "synproxy", `xt match "limit"`,
	`xt match "hashlimit"`, `xt match "quota"`, `xt target "TPROXY"`,
}

// EveryPacket returns the chains of other programs with such rules, as in "limit rate in the chain forward of the inet
// table shaper". It leaves out tables that it cannot read.
func EveryPacket(ctx context.Context) (places []string) {
	ctx, cancel := context.WithTimeout(ctx, timeBound)
	defer cancel()
	listed, _, err := nft.Tables()
	if err != nil {
		return nil
	}
	for _, l := range listed {
		if !concerns(l) || isNAT(l) {
			continue
		}
		if text, err := nft.Run(ctx, maxTable, "", "-s", "list", "table", l.Family, l.Name); err == nil {
			places = append(places, needfulIn(string(text), fmt.Sprintf("of the %s table %s", l.Family, l.Name))...)
		}
	}
	return places
}

// needfulIn searches the output of "nft list table".
func needfulIn(text, of string) (places []string) {
	chain := ""
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "\tchain "); ok {
			chain = strings.TrimSuffix(strings.TrimSpace(name), " {")
			continue
		}
		if strings.Contains(line, " log ") || !strings.HasPrefix(line, "\t\t") || chain == "" {
			continue
		}
		for _, word := range needful {
			place := fmt.Sprintf("%s in the chain %s %s", word, chain, of)
			if strings.Contains(line, word+" ") && !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
	}
	return places
}
