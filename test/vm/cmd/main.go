// Command cmd runs a command in a virtual machine. See scripts/vm.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"edgeway/test/vm"
)

const usage = `Usage: scripts/vm [OPTION]... DIR COMMAND [ARGUMENT]...

Runs COMMAND in a virtual machine, in a copy of the directory DIR, as root. The command's output goes to
standard output. This program exits with the command's exit code, or with 125 if no VM could run the job
or the job was killed.

`

// exitFailure is the exit code of cmd if no VM could run the job, or if cmd killed the job.
const exitFailure = 125

func main() { os.Exit(run()) }

func run() int {
	var j vm.Job
	kernel := flag.String("kernel", "bookworm",
		"the Debian `suite` that provides the kernel and user space: bullseye, bookworm, trixie or newest")
	flag.StringVar((*string)(&j.Arch), "arch", "amd64", "the Debian `architecture`: amd64, arm64 or armhf")
	flag.BoolVar(&j.Systemd, "systemd", false,
		"run systemd as the init process, so that the job can test packages and units")
	flag.BoolVar(&j.Counted, "counted", false,
		"derive the VM's clock from the number of executed instructions, so that measurements are repeatable")
	flag.IntVar(&j.MIPS, "mips", 250,
		"the speed of the -counted clock in `millions` of instructions per second: 1000, 500, 250 ...")
	flag.IntVar(&j.MemoryMB, "memory", 2048, "the VM's memory in `MB`")
	flag.StringVar(&j.CPU, "cpu", "",
		"the VM's CPU, as `model`[,feature=on|off]... (default for amd64: "+vm.DefaultCPU+")")
	flag.IntVar(&j.SMP, "smp", 1, "the `number` of CPUs")
	flag.DurationVar(&j.Timeout, "timeout", vm.DefaultTimeout, "the `duration` after which the runner kills the job")
	flag.StringVar(&j.Out, "out", "",
		"the `directory` to which the runner copies the files that the command writes to /vm/out")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		return exitFailure
	}
	suite, err := vm.ParseSuite(*kernel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return exitFailure
	}
	j.Suite, j.Output = suite, os.Stdout
	j.Files, j.Command = map[string]string{".": flag.Arg(0)}, flag.Args()[1:]
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit, err := vm.Run(ctx, j)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return exitFailure
	}
	return exit
}
