package vm

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

// archive writes an initramfs in the cpio "newc" format (buffer-format.rst in the kernel's documentation). The kernel
// unpacks consecutive archives in order, so a file in a later archive replaces the same file in an earlier archive.
type archive struct {
	w       *bufio.Writer
	written int64
	inode   int
	dirs    map[string]bool
	err     error
}

// entry is a file in an archive. An entry's name has no leading slash. All modification times are in 1970, because no
// program reads them.
type entry struct {
	name               string
	mode               uint32
	uid, gid           int
	devMajor, devMinor int64
	size               int64
	content            io.Reader
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{"": true, ".": true}}
}

func (a *archive) add(e entry) error {
	a.inode++
	a.printf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, e.mode, e.uid, e.gid, 1, 0, e.size, 0, 0, e.devMajor, e.devMinor, len(e.name)+1, 0, e.name)
	a.pad(4)
	if e.size > 0 && a.err == nil {
		var n int64
		n, a.err = io.CopyN(a.w, e.content, e.size)
		a.written += n
	}
	a.pad(4)
	if a.err != nil {
		return fmt.Errorf("archive entry %s: %w", e.name, a.err)
	}
	return nil
}

func (a *archive) close() error {
	_ = a.add(entry{name: "TRAILER!!!"})
	a.pad(512)
	return errors.Join(a.err, a.w.Flush())
}

func (a *archive) printf(format string, args ...any) {
	if a.err == nil {
		var n int
		n, a.err = fmt.Fprintf(a.w, format, args...)
		a.written += int64(n)
	}
}

func (a *archive) pad(to int64) {
	if rest := a.written % to; rest != 0 {
		a.printf("%s", strings.Repeat("\x00", int(to-rest)))
	}
}

func (a *archive) text(name, content string, mode uint32) error {
	if err := a.parents(name); err != nil {
		return err
	}
	return a.add(entry{
		name: name, mode: typeFile | mode, size: int64(len(content)),
		content: strings.NewReader(content),
	})
}

func (a *archive) symlink(name, to string) error {
	if err := a.parents(name); err != nil {
		return err
	}
	return a.add(entry{name: name, mode: typeLink | 0o777, size: int64(len(to)), content: strings.NewReader(to)})
}

// addDir adds a directory and its parents, unless the archive already contains them.
func (a *archive) addDir(name string) error {
	if a.dirs[name] {
		return nil
	}
	a.dirs[name] = true
	if err := a.parents(name); err != nil {
		return err
	}
	return a.add(entry{name: name, mode: typeDir | 0o755})
}

func (a *archive) parents(name string) error {
	return a.addDir(strings.TrimSuffix(path.Dir(name), "."))
}

// addTree copies a file or a directory tree from the host into the archive. In the archive, root owns all files.
func (a *archive) addTree(name, source string) error {
	return filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		inside := path.Join(name, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		if file == source { // the user may specify a symbolic link
			if info, err = os.Stat(file); err != nil {
				return err
			}
		}
		switch {
		case info.IsDir():
			return a.addDir(inside)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return a.symlink(inside, to)
		case info.Mode().IsRegular():
			return a.file(inside, file, info)
		}
		return fmt.Errorf("%s is not a file, directory or symbolic link", file)
	})
}

func (a *archive) file(name, source string, info fs.FileInfo) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := a.parents(name); err != nil {
		return err
	}
	return a.add(entry{name: name, mode: typeFile | uint32(info.Mode().Perm()), size: info.Size(), content: f})
}

// addTarEntry adds an entry of a tar file to the archive. Hard links become symbolic links.
func (a *archive) addTarEntry(h *tar.Header, content io.Reader) error {
	name := strings.Trim(path.Clean("/"+h.Name), "/")
	if name == "" {
		return nil
	}
	// The permission bits, including setuid, setgid and sticky, have the same values in tar and cpio.
	e := entry{name: name, mode: uint32(h.Mode & 0o7777), uid: h.Uid, gid: h.Gid}
	switch h.Typeflag {
	case tar.TypeReg:
		e.mode, e.size, e.content = typeFile|e.mode, h.Size, content
	case tar.TypeDir:
		e.mode |= typeDir
	case tar.TypeSymlink, tar.TypeLink:
		to := h.Linkname
		if h.Typeflag == tar.TypeLink {
			to = path.Clean("/" + to)
		}
		e.mode, e.size, e.content = typeLink|0o777, int64(len(to)), strings.NewReader(to)
	case tar.TypeChar:
		e.mode, e.devMajor, e.devMinor = typeChar|e.mode, h.Devmajor, h.Devminor
	default:
		return fmt.Errorf("%s has type %q, which Debian packages do not use", h.Name, h.Typeflag)
	}
	return a.add(e)
}
