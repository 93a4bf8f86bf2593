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

// cleanup removes the filters, pinned BPF objects and nft tables that any version of the backend has left on the host.
// Existing connections keep working, because their sockets exchange packets directly with the endpoints. After cleanup,
// getpeername and recvmsg return the endpoint's address instead of the Service's address.
func cleanup(ctx context.Context, dir string) error {
	if err := removeAllFilters(); err != nil {
		return fmt.Errorf("removal of filters from network devices: %w", err)
	}
	if err := unpinAll(dir); err != nil {
		return fmt.Errorf("removal of pinned BPF objects in %s: %w", dir, err)
	}
	return nfttable.Cleanup(ctx, tableName)
}

// unpinAll removes links before the programs and maps that they refer to. The kernel detaches and frees BPF objects
// that are no longer referenced.
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
	// Either a systemd mount unit or Edgeway itself mounted the BPF file system. Unmounting fails if the process has no
	// permission to mount file systems.
	if unix.Unmount(dir, 0) == nil {
		_ = os.Remove(dir)
	}
	return nil
}

// unpinLinks removes the links of this version's hooks in reverse attachment order, and then the links that other
// versions left.
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
