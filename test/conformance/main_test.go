package conformance

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m, backends()...)) }

// backends returns all backends that the tests of this package pass to Run.
func backends() []Backend {
	return []Backend{nftablesBackend(), iptablesBackend("nft"), iptablesBackend("legacy"), ipvsBackend(), ebpfBackend(false), ebpfBackend(true)}
}
