package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// bootTime is the maximum time between the start of a VM and the start of its job. A boot takes 10 s on an idle
	// host, and much longer on a busy host.
	bootTime = 10 * time.Minute
	// maxBoots is the maximum number of attempts to boot a VM. Under QEMU 7.2, the kernel sometimes crashes before its
	// init process starts, and Linux 7.2 sometimes crashes even with the flags in DefaultCPU. The runner never repeats
	// a job that has started.
	maxBoots = 3
	poll     = 50 * time.Millisecond
)

// errBoot means that a VM powered off before its job started, or that the job did not start within bootTime.
var errBoot = errors.New("the VM did not boot")

// Run runs a job and returns the exit code of its command. Run returns an error if the job exceeds its timeout, or if
// the VM powers off without an exit code.
func Run(ctx context.Context, j Job) (exit int, err error) {
	j.setDefaults()
	img, err := j.prepare(ctx)
	if err != nil {
		return 0, err
	}
	return j.run(ctx, img)
}

func (j *Job) setDefaults() {
	j.Suite, j.Arch = cmp.Or(j.Suite, Bookworm), cmp.Or(j.Arch, AMD64)
	j.Timeout = cmp.Or(j.Timeout, DefaultTimeout)
	j.MemoryMB = cmp.Or(j.MemoryMB, 2048)
	j.CPU = cmp.Or(j.CPU, platforms[j.Arch].cpu)
	j.SMP = cmp.Or(j.SMP, 1)
	j.MIPS = cmp.Or(j.MIPS, 250)
	if j.Output == nil {
		j.Output = io.Discard
	}
	if j.Notes == nil {
		j.Notes = os.Stderr
	}
}

func (j *Job) run(ctx context.Context, img image) (exit int, err error) {
	for n := 1; ; n++ {
		exit, err = j.boot(ctx, img)
		if !errors.Is(err, errBoot) || n == maxBoots || ctx.Err() != nil {
			return exit, err
		}
		_, _ = fmt.Fprintf(j.Notes, "vm: attempt %d to boot %s failed, trying again: %v\n", n, j.Suite, err)
	}
}

// machine is a running virtual machine. The directory dir contains a file for each of the VM's serial ports.
type machine struct {
	job   *Job
	dir   string
	ended chan struct{} // closed after QEMU has exited
	kill  func()
}

const (
	consoleFile = "console"
	outputFile  = "output"
	eventsFile  = "events"
	tarFile     = "out.tar"
)

func (j *Job) boot(ctx context.Context, img image) (int, error) {
	dir, err := os.MkdirTemp("", "edgeway-vm-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	initrd, err := j.writeInitrd(img)
	if err != nil {
		return 0, fmt.Errorf("files of the job: %w", err)
	}
	defer func() { _ = initrd.Close() }()
	m := &machine{job: j, dir: dir, ended: make(chan struct{})}
	ctx, m.kill = context.WithCancel(ctx)
	defer m.kill()
	failed := make(chan error, 1)
	go func() {
		// The kernel kills QEMU when the thread that started QEMU exits, so the goroutine must stay on its thread.
		runtime.LockOSThread()
		defer close(m.ended)
		failed <- m.qemu(ctx, img.kernel, initrd)
	}()
	exit, err := m.watch(ctx)
	m.kill()
	<-m.ended
	switch text := m.read(consoleFile); {
	case err == nil && j.Out != "":
		return exit, m.unpack(ctx)
	case err != nil:
		return 0, fmt.Errorf("%w (qemu: %w); the end of the console output:\n%s", err, <-failed, tail(text, 30))
	}
	return exit, nil
}

// qemu runs QEMU until it exits, and returns an error that describes how QEMU exited.
func (m *machine) qemu(ctx context.Context, kernel string, initrd *os.File) error {
	flavour := "minimal"
	if m.job.Systemd {
		flavour = "systemd"
	}
	accelerator, clock := "tcg,thread=multi", ""
	if m.job.Arch == AMD64 {
		clock = clockParameter()
	}
	if m.job.Counted {
		accelerator, clock = "tcg,thread=single", " tsc_early_khz=1000000" // one tick is 1 ns of the VM's time
	}
	hardware := platforms[m.job.Arch]
	args := []string{
		"-accel", accelerator, "-m", strconv.Itoa(m.job.MemoryMB),
		"-cpu", m.job.CPU, "-smp", strconv.Itoa(m.job.SMP),
		"-M", hardware.machine, "-nodefaults", "-display", "none", "-no-reboot", "-no-user-config",
		"-kernel", kernel, "-initrd", "/proc/self/fd/3", // descriptor 3 is the first of the extra files below
		// Without tsc=reliable, Linux 6.1 reads the HPET whenever a program asks for the time, and each read interrupts
		// the emulated code. With address randomization, QEMU 7.2 translates a program again at each start, which slows
		// down the start by a factor of four.
		"-append", "console=" + hardware.console +
			" quiet panic=-1 mitigations=off tsc=reliable norandmaps init_on_alloc=0 hardened_usercopy=off " +
			"rdinit=/vm/init" + clock + " -- " + flavour,
		"-chardev", "file,id=console,path=" + filepath.Join(m.dir, consoleFile), "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
	}
	if m.job.Counted {
		shift := bits.Len(uint(1000/m.job.MIPS)) - 1 // each instruction takes 2^shift ns; QEMU skips idle time
		args = append(args, "-icount", fmt.Sprintf("shift=%d,sleep=off", shift))
	}
	for n, name := range []string{outputFile, eventsFile, tarFile} {
		args = append(args,
			"-chardev", fmt.Sprintf("file,id=%s,path=%s", name, filepath.Join(m.dir, name)),
			"-device", fmt.Sprintf("virtserialport,nr=%d,chardev=%s,name=%s", n+1, name, name))
	}
	cmd := exec.CommandContext(ctx, hardware.program, args...)
	cmd.ExtraFiles = []*os.File{initrd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if used := cmd.ProcessState; used != nil {
		_, _ = fmt.Fprintf(m.job.Notes, "vm: %s used %.0f s of CPU time\n", m.job.Suite,
			(used.UserTime() + used.SystemTime()).Seconds())
	}
	if err != nil {
		return fmt.Errorf("%w %s", err, bytes.TrimSpace(out))
	}
	return errors.New("ended by itself")
}

var exitEvent = regexp.MustCompile(`(?m)^exit (\d+)\n`)

// watch copies the command's output until the VM powers off, and then returns the command's exit code.
func (m *machine) watch(ctx context.Context) (int, error) {
	start, passed := time.Now(), int64(0)
	for ended, started := false, false; ; {
		select {
		case <-m.ended:
			ended = true
		case <-time.After(poll):
		}
		if err := m.copyOutput(&passed); err != nil {
			return 0, fmt.Errorf("output of the job: %w", err)
		}
		events := m.read(eventsFile)
		if !started && bytes.HasPrefix(events, []byte("started\n")) {
			started, start = true, time.Now()
		}
		switch after := time.Since(start).Round(time.Second); {
		case ended && exitEvent.Match(events):
			return strconv.Atoi(string(exitEvent.FindSubmatch(events)[1]))
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case started && after >= m.job.Timeout:
			return 0, fmt.Errorf("the job did not finish within %s, so the runner killed it", m.job.Timeout)
		case ended && started:
			return 0, fmt.Errorf("the VM powered off %s after the job started and before the job finished", after)
		case ended, !started && after >= bootTime:
			return 0, fmt.Errorf("%w within %s", errBoot, after)
		}
	}
}

// copyOutput copies the output that the command has written since the previous call. *passed is the number of bytes
// that copyOutput has already copied.
func (m *machine) copyOutput(passed *int64) error {
	f, err := os.Open(filepath.Join(m.dir, outputFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil // QEMU has not created the file yet
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(*passed, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(m.job.Output, f)
	*passed += n
	return err
}

func (m *machine) read(name string) []byte {
	b, _ := os.ReadFile(filepath.Join(m.dir, name))
	return b
}

func (m *machine) unpack(ctx context.Context) error {
	if err := os.MkdirAll(m.job.Out, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "tar", "-xf", filepath.Join(m.dir, tarFile), "-C", m.job.Out)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copying files from the job: %w: %s", err, out)
	}
	return nil
}

func tail(text []byte, lines int) []byte {
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
}
