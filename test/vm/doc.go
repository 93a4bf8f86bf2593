// Package vm runs a job in a virtual machine with a Debian kernel and user space under QEMU. The machine can have
// features that the kernel or the init system of the host lacks.
//
// A test selects the machine by a Debian suite (see Suite) and by a flavor. The minimal flavor, in which the init
// process is a shell script that starts only the job, suits compiled test binaries. The systemd flavor suits packages
// and units. The machine has no disk, and its only network interface is the loopback interface. The machine loses all
// changes to its files when it powers off.
//
// A job is a command and the files that it needs. A test starts a job with package vmtest, which also handles hosts
// that cannot run virtual machines. Package jobs has examples:
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
// The files exist before the machine boots, so systemd starts a unit in multi-user.target.wants as on any host. When
// systemd has reached basic.target, the command starts as root in the directory /vm/job. To wait for other units, a
// command can run "systemctl is-system-running --wait". The runner copies the files that the command writes into
// /vm/out to Job.Out. scripts/vm runs a job from the command line.
//
// QEMU emulates the machine (TCG, without hardware virtualization), so a program runs ten to twenty times slower than
// on the host.
package vm
