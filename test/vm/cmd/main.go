// Command cmd runs a command in a virtual machine: see scripts/vm.
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

Runs COMMAND in a virtual machine, in a copy of the folder DIR, as root. Its output goes to standard
output, and its exit code is that of this program (125: there was no machine, or the job was killed).

`

// failed is the exit code of cmd if no machine could run the job, or if the job was killed.
const failed = 125

func main() { os.Exit(run()) }

func run() int {
	var j vm.Job
	kernel := flag.String("kernel", "bookworm", "the Debian `suite` of kernel and user space: bookworm, trixie or newest")
	flag.BoolVar(&j.Systemd, "systemd", false, "have systemd as init, for packages and units")
	flag.BoolVar(&j.Counted, "counted", false, "have a clock that counts instructions, to measure")
	flag.IntVar(&j.MIPS, "mips", 250, "how many `million` instructions are a second of that clock: 1000, 500, 250 ...")
	flag.IntVar(&j.MemoryMB, "memory", 2048, "the machine's memory in `MB`")
	flag.StringVar(&j.CPU, "cpu", "", "the machine's processor, as `model`[,feature=on|off]...; empty: "+vm.DefaultCPU)
	flag.IntVar(&j.SMP, "smp", 1, "how many `processors` the machine has")
	flag.DurationVar(&j.Timeout, "timeout", vm.DefaultTimeout, "kill a job that takes longer")
	flag.StringVar(&j.Out, "out", "", "the `folder` that receives what the command leaves in /vm/out")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		return failed
	}
	suite, err := vm.ParseSuite(*kernel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return failed
	}
	j.Suite, j.Output = suite, os.Stdout
	j.Files, j.Command = map[string]string{".": flag.Arg(0)}, flag.Args()[1:]
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit, err := vm.Run(ctx, j)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return failed
	}
	return exit
}
