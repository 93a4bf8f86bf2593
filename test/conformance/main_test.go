package conformance

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m, backends()...)) }

func backends() []Backend {
	return []Backend{
		nftablesBackend(), iptablesBackend("nft"), iptablesBackend("legacy"), ipvsBackend(),
		ebpfBackend(false), ebpfBackend(true),
	}
}
