package vm

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// packages lists the packages that every image contains in addition to the kernel and Debian's essential packages.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps",
	"nftables", "iptables", "ipset", "ipvsadm", "conntrack", "iproute2", "iputils-ping",
	"iperf3", "socat", "curl", "ca-certificates",
}

// omittedFiles lists files that would only take up memory in the VM. The first pattern omits the kernel's scripts that
// build an initrd.
var omittedFiles = []string{
	"/etc/kernel/postinst.d/*", "/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*",
	"/usr/share/info/*", "/usr/lib/udev/hwdb.d/*", "/lib/udev/hwdb.d/*",
}

type image struct {
	kernel, root string
}

// An image consists of the files kernelFile, rootFile and sumsFile. Prepare writes the checksums last, so an image
// without checksums is incomplete.
const (
	kernelFile = "kernel"
	rootFile   = "root.cpio"
	sumsFile   = "SHA256SUMS"
)

// recipe returns the mmdebstrap arguments that determine an image's contents. The contents also depend on the state of
// the Debian archive.
func recipe(s Suite, arch Arch, more []string) []string {
	include := strings.Join(slices.Concat([]string{platforms[arch].kernel}, packages, more), ",")
	args := []string{"--mode=root", "--variant=minbase", "--format=tar", "--quiet", "--include=" + include}
	if arch != AMD64 {
		args = append(args, "--architectures="+string(arch))
	}
	for _, pattern := range omittedFiles {
		args = append(args, "--dpkgopt=path-exclude="+pattern)
	}
	return append(args, string(s), "-")
}

func cacheDir(s Suite, recipe []string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	// The hashed text starts with the version number of the code that builds images. Increment the version number
	// whenever changed code builds a different image from the same packages.
	sum := sha256.Sum256([]byte("2 " + strings.Join(recipe, " ")))
	return filepath.Join(base, "edgeway", "vm", fmt.Sprintf("%s-%x", s, sum[:6])), nil
}

// Prepare builds the image that a job needs, unless the cache has an intact image. If several processes call Prepare at
// the same time, one process builds the image and the others wait. To get current packages, remove the old image.
func Prepare(ctx context.Context, j Job) error {
	j.setDefaults()
	_, err := j.prepare(ctx)
	return err
}

func (j *Job) prepare(ctx context.Context) (image, error) {
	s, args := j.Suite, recipe(j.Suite, j.Arch, j.Packages)
	dir, err := cacheDir(s, args)
	if err != nil {
		return image{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return image{}, fmt.Errorf("cache directory: %w", err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return image{}, fmt.Errorf("locking the cache: %w", err)
	}
	defer func() { _ = lock.Close() }() // closing the file releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return image{}, fmt.Errorf("locking the cache: %w", err)
	}
	if verify(dir) != nil {
		if err := build(ctx, args, dir); err != nil {
			return image{}, fmt.Errorf("building the %s image for %s: %w", s, j.Arch, err)
		}
	}
	return image{kernel: filepath.Join(dir, kernelFile), root: filepath.Join(dir, rootFile)}, nil
}

func sums(dir string) (string, error) {
	var b strings.Builder
	for _, name := range []string{kernelFile, rootFile} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%x  %s\n", h.Sum(nil), name)
	}
	return b.String(), nil
}

func seal(dir string) error {
	text, err := sums(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(text), 0o644)
}

func verify(dir string) error {
	want, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return err
	}
	got, err := sums(dir)
	if err != nil {
		return err
	}
	if got != string(want) {
		return errors.New("the image has changed since it was built")
	}
	return nil
}

func build(ctx context.Context, recipe []string, dir string) error {
	mirror, err := debianMirror(ctx)
	if err != nil {
		return err
	}
	settings, err := aptSettings(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mmdebstrap", slices.Concat(settings, recipe, []string{mirror})...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	// On SIGTERM, mmdebstrap unmounts its file systems and removes its files.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	var log strings.Builder
	cmd.Stderr = &log
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = convert(pipe, dir)
	_, _ = io.Copy(io.Discard, pipe) // mmdebstrap must be able to clean up and exit
	if failed := cmd.Wait(); failed != nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", failed, log.String())
	}
	if err != nil {
		return err
	}
	return seal(dir)
}

// convert converts a tar file of the whole system to the image's files in dir.
func convert(r io.Reader, dir string) error {
	out, err := os.Create(filepath.Join(dir, rootFile))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	a, kernels := newArchive(out), 0
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the system: %w", err)
		}
		switch {
		case strings.HasPrefix(h.Name, "./boot/vmlinuz-"):
			kernels++
			err = save(t, filepath.Join(dir, kernelFile))
		case strings.HasPrefix(h.Name, "./boot/") && h.Typeflag != tar.TypeDir: // the VM needs only the kernel
		default:
			err = a.addTarEntry(h, t)
		}
		if err != nil {
			return err
		}
	}
	if kernels != 1 {
		return fmt.Errorf("the tar file contains %d kernels, want 1", kernels)
	}
	return errors.Join(a.close(), out.Close())
}

func save(r io.Reader, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
