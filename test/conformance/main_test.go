package conformance

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m, backends()...)) }

// backends are all that the tests of this package hand to Run.
func backends() []Backend {
	return []Backend{nftablesBackend(), iptablesBackend("nft"), iptablesBackend("legacy"), ipvsBackend(), ebpfBackend(false), ebpfBackend(true)}
}
