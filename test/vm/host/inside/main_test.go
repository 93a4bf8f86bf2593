package inside

import (
	"fmt"
	"os"
	"testing"

	"edgeway/test/netlab"
)

const jobDir = "/vm/job"

func TestMain(m *testing.M) {
	netlab.PeerMain()
	if _, err := os.Stat(jobDir); err != nil {
		fmt.Println("these tests run in a virtual machine: test/vm/host starts it")
		return
	}
	os.Exit(m.Run())
}

// scenario is a test case. All scenarios share the machine and run in order.
type scenario struct {
	name string
	run  func(*host)
	// If vital is true and the scenario fails, the test skips all later scenarios.
	vital bool
}

func TestPackage(t *testing.T) {
	before := takeInventory(t)
	play(t, []scenario{
		{name: "install starts nothing", run: installStartsNothing, vital: true},
		{name: "start without sources says what is missing", run: startWithoutSources},
		{name: "kubeconfig that only root may read", run: testRootKubeconfig},
		{name: "enable and start", run: enableAndStart},
		{name: "nothing to complain about", run: verifyNoWarnings},
		{name: "stop leaves the Services", run: testStop},
		{name: "start returns when Services work", run: startReturnsWhenServicesWork},
		{name: "exposure of the unit", run: testExposure},
		{name: "sandbox", run: testSandbox},
		{name: "members of the group may ask", run: testGroupAccess},
		{name: "program out of memory", run: testOutOfMemory},
		{name: "steps of restarts", run: testRestartSteps},
		{name: "restarts", run: restarts},
		{name: "kill -9", run: killed},
		{name: "stopped process", run: testWatchdog},
		{name: "a big Service and little memory", run: testMemoryLimit},
		{name: "restart of the firewall", run: restartFirewall},
		{name: "reload of a bad file", run: reloadBadFile},
		{name: "reload of a good file", run: reloadGoodFile},
		{name: "backend iptables-nft", run: testIPTablesNFT},
		{name: "backend iptables-legacy, with the drop-in", run: testIPTablesLegacy},
		{name: "rules of iptables-legacy that may not be read", run: testMissingRights},
		{name: "backend ebpf, with the drop-in", run: testEbpf},
		{name: "journal", run: testJournal},
		{name: "port that another program has", run: testPortInUse},
		{name: "fences of the operator", run: testOperatorSettings},
		{name: "socket unit, client before the daemon", run: socketBeforeDaemon},
		{name: "socket unit, client starts the daemon", run: socketStartsDaemon},
		{name: "socket unit of a port that is no NodePort", run: socketOfNoNodePort},
		{name: "upgrade", run: upgrade},
		{name: "remove keeps configuration and state", run: removeKeeps},
		{name: "purge leaves nothing but the user", run: func(h *host) { purgePackage(h, before) }},
	})
}

// TestServices is a shorter version of TestPackage for slow machines. It only installs the package and tests Services.
func TestServices(t *testing.T) {
	play(t, []scenario{
		{name: "install starts nothing", run: installStartsNothing, vital: true},
		{name: "a host with Services", run: hostWithServices},
	})
}

// TestBoot tests a host that boots while its API server is unreachable. The host has the package, a kubeconfig, and an
// earlier daemon's state.
func TestBoot(t *testing.T) {
	play(t, []scenario{
		{name: "Services from the last-known state", run: servicesFromLastKnown},
		{name: "read-only /var", run: startWithReadOnlyVar},
		{name: "wrong clock", run: startWithWrongClock},
		{name: "kubeconfig as a credential", run: useKubeconfigCredential},
		{name: "replaced kubeconfig that is a credential", run: testLoadCredential},
		{name: "replaced kubeconfig that only root can read", run: testKubeconfigUnits},
		{name: "state of a later version", run: testLaterStateVersion},
		{name: "start without state waits", run: startWithoutState},
	})
}

func TestRelease(t *testing.T) {
	play(t, []scenario{
		{name: "install from the repository", run: installFromRepository, vital: true},
		{name: "repository that was changed", run: testModifiedIndex},
		{name: "upgrade and back", run: upgradeAndBack},
	})
}

func play(t *testing.T, scenarios []scenario) {
	net := newNetwork(t)
	for _, s := range scenarios {
		ok := t.Run(s.name, func(t *testing.T) {
			s.run(&host{T: t, network: net})
		})
		if !ok && s.vital {
			t.Fatalf("nothing more can be said after %q", s.name)
		}
	}
}
