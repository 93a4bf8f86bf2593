package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfttable"
)

// cleanup removes the state of all versions of the backend. Open sockets keep working, because they exchange packets
// with their endpoints directly. After cleanup, getpeername and recvmsg return the addresses of the endpoints to
// applications.
func cleanup(ctx context.Context, dir string) error {
	if err := removeAllFilters(); err != nil {
		return fmt.Errorf("remove filters from network devices: %w", err)
	}
	if err := unpinAll(dir); err != nil {
		return fmt.Errorf("remove what is pinned in %s: %w", dir, err)
	}
	return nfttable.Cleanup(ctx, tableName)
}

// unpinAll removes links before the objects that the links refer to. The kernel frees and detaches objects without
// references.
func unpinAll(dir string) error {
	if !isBPF(dir) {
		return nil
	}
	layouts, err := layoutsIn(dir)
	if err != nil {
		return err
	}
	for _, layout := range layouts {
		if err := unpinLinks(layout); err != nil {
			return err
		}
		if err := os.RemoveAll(layout); err != nil {
			return err
		}
	}
	// The systemd unit created the mount, or this program did if it may mount file systems.
	if unix.Unmount(dir, 0) == nil {
		_ = os.Remove(dir)
	}
	return nil
}

// unpinLinks removes forward hooks before reverse hooks, and then the links of other versions.
func unpinLinks(layout string) error {
	for _, h := range slices.Backward(hooks()) {
		if err := os.Remove(filepath.Join(layout, linkPrefix+h.program)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	others, err := filepath.Glob(filepath.Join(layout, linkPrefix+"*"))
	for _, path := range others {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
