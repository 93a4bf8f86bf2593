// Package vm runs a job in a virtual machine: a Debian kernel and its user space under QEMU, for what
// the kernel and the init system of the testing machine lack.
//
// There is a machine for each of three Debian suites (see Suite), and each boots in one of two flavours:
// minimal, where a shell script is the init and only the job runs, for compiled test binaries; and
// systemd, for packages and units. The machine has no network but its own loopback, no disk, and
// everything that it does is gone when it ends.
//
// A job is a command and the files that it needs. A test starts one with package vmtest, which also has
// the rules for machines that cannot run it; package jobs has examples:
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
// Files are in place when the machine boots: a unit that is put into multi-user.target.wants starts as on
// any host. The command starts in the folder /vm/job, as root, at the end of the boot: when basic.target
// has been reached (of other units it waits for nobody; "systemctl is-system-running --wait" does). What
// it writes into /vm/out comes back when Job.Out says where. For a person there is scripts/vm.
//
// The machine is emulated (TCG; hardware virtualisation is not used), so a program runs ten to twenty
// times slower than outside.
package vm
