package ebpf

import (
	"context"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

// Name is the backend's name in the configuration.
const Name = "ebpf"

// Component describes the backend.
func Component() proxiers.Component { return ComponentIn(Dir) }

// ComponentIn describes a backend that pins its objects in dir. Two daemons on one host need separate directories.
func ComponentIn(dir string) proxiers.Component {
	return proxiers.Component{
		Name: Name,
		Doc: "BPF programs connect this host's sockets directly to endpoints, " +
			"and nft tables handle all other connections",
		Probe: func(ctx context.Context) error { return probeHost(ctx, dir) },
		Faults: func(settings map[string]any, served []plan.Family) []fault.Fault {
			return missingFeatures(dir, tcOf(settings), served)
		},
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			p, err := newProxier(dir, env)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Cleanup: func(ctx context.Context, _ proxiers.Env) error { return cleanup(ctx, dir) },
		Settings: []proxiers.Setting{{
			Name: "size", Default: "normal", Values: []string{"normal", "large"},
			Doc: "The size of the BPF maps. " +
				"\"normal\" holds 65,536 Service addresses and ports and 131,072 endpoints in 8 MB of memory. " +
				"\"large\" holds 524,288 Service addresses and ports and 1,048,576 endpoints in 70 MB. " +
				"nftables handles connections to Services that do not fit into the maps.",
		}, {
			Name: "tc", Default: false,
			Doc: "Whether a tc program on network devices also handles TCP connections from pods and other hosts. " +
				"If tc is false, nftables handles these connections about as fast as the tc program. " +
				"If tc is true, edgeway-bpf.service needs CAP_SYS_ADMIN, which the drop-in ebpf-tc.conf grants. " +
				"See backends.md in the package's documentation.",
		}},
		Traits: proxiers.Traits{DropIn: "ebpf.conf", CountsConnections: true},
	}
}

// Prepare loads and pins the BPF programs and maps. Loading BPF programs needs more privileges than the daemon has.
// Prepare keeps objects that are already pinned.
func Prepare(env proxiers.Env) error {
	without, err := load(Dir, sizeOf(env.Settings), tcOf(env.Settings))
	if err == nil && without != nil {
		env.Logger.Warn("cannot load the tc program, using nftables", "error", without)
	}
	return err
}

const tableName = proxiers.EBPFTable

// schema describes this backend's nft tables, which have the same rules as the nftables backend's tables.
func schema(count bool) nfttable.Schema { return nftables.EndpointSchema(tableName, count) }
