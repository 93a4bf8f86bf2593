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

// cleanup removes what any version left. Sockets that are open go on: they speak with their endpoints themselves. Their
// programs are told these endpoints' addresses from now on.
func cleanup(ctx context.Context, dir string) error {
	if err := removeAllFilters(); err != nil {
		return fmt.Errorf("remove filters from network devices: %w", err)
	}
	if err := unpinAll(dir); err != nil {
		return fmt.Errorf("remove what is pinned in %s: %w", dir, err)
	}
	return nfttable.Cleanup(ctx, tableName)
}

// unpinAll removes links before what they need. What nobody holds any more the kernel frees, and detaches.
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
	// The mount is the unit's, or this program's if it may do that.
	if unix.Unmount(dir, 0) == nil {
		_ = os.Remove(dir)
	}
	return nil
}

// unpinLinks removes the ways there before the ways back, and last those that only another version knows.
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
