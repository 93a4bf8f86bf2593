package flowtable

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfttable"
)

// write writes the table with these devices.
func (f *follower) write(ctx context.Context, wanted *contents, devices map[int]string) error {
	software := f.opts
	software.Hardware = false
	_, lacks := devices[f.lacking]
	if !f.opts.Hardware || lacks {
		return f.commit(ctx, whole(wanted, names(devices), software))
	}
	// Some drivers (mlx5 in Linux 7.2) take a device a second time only when the first table is gone: two transactions.
	if err := f.commit(ctx, noTable); err != nil {
		return err
	}
	err := f.commit(ctx, whole(wanted, names(devices), f.opts))
	if !nfttable.Refused(err, unix.EOPNOTSUPP) {
		f.degrade(nil)
		return err
	}
	f.degrade(f.lacks(ctx, devices, err))
	return f.commit(ctx, whole(wanted, names(devices), software))
}

// lacks says which device's driver the kernel refuses. All must do, as the flag is the flowtable's.
func (f *follower) lacks(ctx context.Context, devices map[int]string, all error) error {
	for _, index := range slices.Sorted(maps.Keys(devices)) {
		name := devices[index]
		err := f.nft.Check(ctx, fmt.Sprintf("add table inet %[1]s-probe\nadd flowtable inet %[1]s-probe %[2]s { hook ingress priority %[3]d; flags offload; devices = { %[4]q }; }\n",
			tableName, fastpath, last, name))
		if nfttable.Refused(err, unix.EOPNOTSUPP) {
			f.lacking = index
			return fmt.Errorf("the driver of the device %s cannot", name)
		}
	}
	return all
}

// degrade notes, and tells once, why packets are not forwarded by hardware.
func (f *follower) degrade(why error) {
	f.mu.Lock()
	before := f.degraded
	f.degraded = why
	f.mu.Unlock()
	if why != nil && (before == nil || before.Error() != why.Error()) {
		f.env.Logger.Warn("no network device forwards the fast path's packets itself, the kernel does", "error", why)
	}
}

// Degraded implements proxiers.Offloader.
func (f *follower) Degraded() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.degraded
}
