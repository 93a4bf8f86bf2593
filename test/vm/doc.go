// Package vm runs a job in a virtual machine (VM) with a Debian kernel and user space under QEMU. The VM can have
// features that the host's kernel or init system lacks.
//
// A test selects the VM by a Debian suite (see Suite) and by a flavor. The minimal flavor suits compiled test binaries:
// its init process is a shell script that starts only the job. The systemd flavor suits packages and units. The VM has
// no disk, and its only network interface is the loopback interface. The VM keeps its files in memory, so all changes
// to its files disappear when the VM powers off.
//
// A job is a command and the files that it needs. A test starts a job with package vmtest, which also handles hosts
// that cannot run VMs. Package jobs has examples:
//
//	vmtest.Run(t, vm.Job{
//		Suite:   vm.Trixie,
//		Systemd: true,
//		Files: map[string]string{
//			"job":                             vmtest.BuildTest(t, "edgeway/test/conformance"),
//			"/etc/systemd/system/one.service": "testdata/one.service",
//		},
//		Command: []string{"./job", "-test.v"},
//	})
//
// The files exist before the VM boots, so systemd starts the units in multi-user.target.wants. When systemd has reached
// basic.target, the command starts as root in the directory /vm/job. To wait for other units, a command can run
// "systemctl is-system-running --wait". The command can write files to /vm/out, which the runner copies to Job.Out. The
// script scripts/vm runs a job from the command line.
//
// QEMU emulates the VM (TCG, without hardware virtualization), so a program runs ten to twenty times slower than on the
// host.
package vm
