package vm

import (
	_ "embed" // the scripts below
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Job is a command to run in a virtual machine.
type Job struct {
	// Suite says which kernel and user space; Bookworm if not given.
	Suite Suite
	// Packages are Debian packages that the machine has beside those of every machine: it boots from an image of its
	// own.
	Packages []string
	// Systemd has systemd as init, in place of a script that runs the job alone.
	Systemd bool
	// Files are put into the machine before it boots: path there to file or folder here. Paths there are
	// relative to /vm/job, or absolute. Owner is root; folders on the way are made with mode 0755.
	Files map[string]string
	// Links are symbolic links to make in the same way: path there to what it points at.
	Links map[string]string
	// Command starts in /vm/job, with Env ("NAME=value") in its environment.
	Command []string
	Env     []string
	// Timeout is for the command; DefaultTimeout if not given. It is there for what hangs: a busy host is slow.
	Timeout time.Duration
	// MemoryMB is the machine's memory; 2048 if not given.
	MemoryMB int
	// CPU is QEMU's model of the processor, with flags; DefaultCPU if not given.
	CPU string
	// SMP is how many processors the machine has; one if not given: a second one costs the emulation a quarter more,
	// and there are other machines to fill the host.
	SMP int
	// Counted has the machine's clock count instructions, of which MIPS million are a second: how fast something is
	// does not depend on what else the host does. It is for one processor, and not for what waits for another clock.
	Counted bool
	// MIPS is 250 if not given; or 1000, for programs whose own limits of time suppose a faster processor, or 500, 125
	// and so on.
	MIPS int
	// Output receives what the command writes to its standard output and error, as it does so.
	Output io.Writer
	// Notes receives what the runner has to say: a boot that is tried again, and the processor time that a machine
	// took. Standard error if not given.
	Notes io.Writer
	// Out, if given, is a folder that receives what the command leaves in /vm/out.
	Out string
}

// DefaultTimeout of a job.
const DefaultTimeout = time.Hour

// DefaultCPU of a machine. QEMU 7.2 crashes in one boot of eight unless the first two flags are off; Linux 7.2 needs
// cx16 for the socket storage of BPF. The others are slow to emulate: with erms the kernel copies byte by byte, and
// smap ends a translated block at each access to user space. QEMU 10 adds fsrm, and with fsrm but without erms Linux
// 6.1 hangs at its start.
const DefaultCPU = "max,cx16=off,la57=off,erms=off,fsrm=off,smap=off,smep=off,pku=off"

//go:embed guest/init
var initScript string

//go:embed guest/minimal
var minimalScript string

//go:embed guest/run
var runScript string

//go:embed guest/vm-job.service
var jobUnit string

// masked units only cost time.
var masked = []string{
	"serial-getty@ttyS0.service", "getty@tty1.service", "systemd-udev-settle.service", "systemd-hwdb-update.service",
	"systemd-binfmt.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
	"fstrim.timer", "e2scrub_all.timer", "e2scrub_reap.service", "iperf3.service", "ipvsadm.service",
}

// files writes the archive that goes over the image's own.
func (j *Job) files(w io.Writer, now time.Time) error {
	a := newArchive(w)
	if err := errors.Join(
		a.text("vm/init", initScript, 0o755),
		a.text("vm/minimal", minimalScript, 0o755),
		a.text("vm/run", runScript, 0o755),
		a.text("vm/command", j.script(), 0o644),
		a.text("vm/time", fmt.Sprintln(now.Unix()), 0o644),
		a.dir("vm/job"), a.dir("vm/out"),
	); err != nil {
		return err
	}
	if j.Systemd {
		if err := addUnits(a); err != nil {
			return err
		}
	}
	for _, there := range slices.Sorted(maps.Keys(j.Files)) {
		if err := a.tree(inside(there), j.Files[there]); err != nil {
			return fmt.Errorf("file %s of the job: %w", there, err)
		}
	}
	for _, there := range slices.Sorted(maps.Keys(j.Links)) {
		if err := a.symlink(inside(there), j.Links[there]); err != nil {
			return err
		}
	}
	return a.close()
}

// inside gives the name in the archive of a path in the machine.
func inside(there string) string {
	if !path.IsAbs(there) {
		there = path.Join("/vm/job", there)
	}
	return strings.TrimPrefix(path.Clean(there), "/")
}

func addUnits(a *archive) error {
	const units = "etc/systemd/system/"
	err := errors.Join(
		a.text(units+"vm-job.service", jobUnit, 0o644),
		a.symlink(units+"multi-user.target.wants/vm-job.service", "/etc/systemd/system/vm-job.service"),
		// An empty machine-id makes a first boot, where systemd enables and disables units.
		a.text("etc/machine-id", "ed6e0000000000000000000000000001\n", 0o444),
		a.text("etc/hostname", "vm\n", 0o644),
		a.symlink("etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target"),
	)
	for _, unit := range masked {
		err = errors.Join(err, a.symlink(units+unit, "/dev/null"))
	}
	return err
}

// script is the command for a shell.
func (j *Job) script() string {
	var b strings.Builder
	for _, e := range j.Env {
		fmt.Fprintf(&b, "export %s\n", quote(e))
	}
	b.WriteString("exec")
	for _, word := range j.Command {
		b.WriteString(" " + quote(word))
	}
	return b.String() + "\n"
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// initrd writes the image's files and the job's into one file, which has no name: it is large, and must
// not stay when this process is killed.
func (j *Job) initrd(img image) (*os.File, error) {
	out, err := os.CreateTemp("", "edgeway-vm-initrd-")
	if err != nil {
		return nil, err
	}
	root, err := os.Open(img.root)
	if err != nil {
		return nil, errors.Join(err, os.Remove(out.Name()), out.Close())
	}
	defer func() { _ = root.Close() }()
	_, err = io.Copy(out, root)
	if err := errors.Join(os.Remove(out.Name()), err, j.files(out, time.Now())); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}
