package inside

import (
	"fmt"
	"os"
	"testing"

	"edgeway/test/netlab"
)

// jobDir is where the files of the job are: packages, manifests and this program.
const jobDir = "/vm/job"

func TestMain(m *testing.M) {
	netlab.PeerMain()
	if _, err := os.Stat(jobDir); err != nil {
		fmt.Println("these tests run in a virtual machine: test/vm/host starts it")
		return
	}
	os.Exit(m.Run())
}

// scenario is one case. They share the machine and stand in the order in which they run.
type scenario struct {
	name string
	run  func(*host)
	// vital: without it the ones after it say nothing.
	vital bool
}

// TestPackage is the life of the package on a host.
func TestPackage(t *testing.T) {
	before := takeInventory(t)
	play(t, []scenario{
		{"install starts nothing", installStartsNothing, true},
		{"start without sources says what is missing", startWithoutSources, false},
		{"kubeconfig that only root may read", kubeconfigOfRoot, false},
		{"enable and start", enableAndStart, false},
		{"nothing to complain about", quiet, false},
		{"stop leaves the Services", stopLeavesServices, false},
		{"start returns when Services work", startReturnsWhenServicesWork, false},
		{"exposure of the unit", exposure, false},
		{"sandbox", sandbox, false},
		{"members of the group may ask", groupMayAsk, false},
		{"program out of memory", programOutOfMemory, false},
		{"steps of restarts", restartSteps, false},
		{"restarts", restarts, false},
		{"kill -9", killed, false},
		{"stopped process", watchdog, false},
		{"a big Service and little memory", littleMemory, false},
		{"restart of the firewall", firewallRestart, false},
		{"reload of a bad file", reloadBadFile, false},
		{"reload of a good file", reloadGoodFile, false},
		{"backend iptables-nft", iptablesNFT, false},
		{"backend iptables-legacy, with the drop-in", iptablesLegacy, false},
		{"rules of iptables-legacy that may not be read", iptablesWithoutRights, false},
		{"journal", journal, false},
		{"port that another program has", portTaken, false},
		{"fences of the operator", fences, false},
		{"socket unit, client before the daemon", socketBeforeDaemon, false},
		{"socket unit, client starts the daemon", socketStartsDaemon, false},
		{"socket unit of a port that is no NodePort", socketOfNoNodePort, false},
		{"upgrade", upgrade, false},
		{"remove keeps configuration and state", removeKeeps, false},
		{"purge leaves nothing but the user", func(h *host) { purgeLeavesNothing(h, before) }, false},
	})
}

// TestBoot is a host that boots while its API server can not be reached. The package is there, with a
// kubeconfig, and with the state that a daemon left behind.
func TestBoot(t *testing.T) {
	play(t, []scenario{
		{"Services from the last-known state", servicesFromLastKnown, false},
		{"kubeconfig as a credential", kubeconfigAsCredential, false},
		{"replaced kubeconfig that is a credential", replacedCredential, false},
		{"replaced kubeconfig that only root can read", replacedRootsKubeconfig, false},
		{"start without state waits", startWithoutState, false},
	})
}

func play(t *testing.T, scenarios []scenario) {
	net := newNetwork(t)
	for _, s := range scenarios {
		ok := t.Run(s.name, func(t *testing.T) { s.run(&host{T: t, network: net}) })
		if !ok && s.vital {
			t.Fatalf("nothing more can be said after %q", s.name)
		}
	}
}
