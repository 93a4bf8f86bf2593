package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
)

func configCommand(g *globals) *cobra.Command {
	cmd := group("config", "Show and check the configuration")
	cmd.AddCommand(
		&cobra.Command{
			Use:   "default",
			Short: "Print a configuration file with every key, its meaning and its default",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprint(cmd.OutOrStdout(), config.CommentedDefault(daemon.Backends()))
				return err
			},
		},
		&cobra.Command{
			Use:   "check",
			Short: "Check the configuration, the kubeconfig and the manifests, and list all errors",
			Long: "Check the configuration file and its drop-ins, the kubeconfig and the files that it " +
				"names, the\nweb configuration and all manifests. Everything that the daemon would reject or " +
				"ignore is an error. Without a kubeconfig,\na Service port without an endpoint is a " +
				"warning. Each message names the file and line, or the object, and the fix.\n\nAs root, the command " +
				"checks a configuration in /etc/edgeway as the user edgeway, because the service reads the " +
				"files with\nthat user's permissions. A backend that this host cannot run is an error for a " +
				"configuration in /etc/edgeway, and a\nwarning for any other configuration, which may be for " +
				"another host. The command changes nothing and contacts no server.\nThe exit code is 2 if there " +
				"are errors.",
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return checkConfig(cmd, g.config) },
		},
		&cobra.Command{
			Use:   "dump",
			Short: "Print the configuration that results from the file, its drop-ins and the defaults",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := daemon.LoadConfig(g.config)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), config.Dump(c))
				return err
			},
		},
	)
	return cmd
}

func checkConfig(cmd *cobra.Command, path string) error {
	var refused []fault.Fault
	if os.Geteuid() == 0 && daemon.IsInstalled(path) {
		ran, err := checkConfigAs(cmd, daemon.ServiceUser, path)
		if ran {
			return err
		}
		if err != nil { // a container may forbid switching to another user
			refused = append(refused, fault.New("permissions", fault.Warning,
				"run: sudo -u "+daemon.ServiceUser+" edgeway config check",
				"cannot check whether the user %s can read the configuration: %v", daemon.ServiceUser, err))
		}
	}
	found, err := daemon.CheckConfig(cmd.Context(), path)
	if err != nil {
		return err
	}
	found = append(found, refused...)
	for _, f := range found {
		prefix := "edgeway"
		if f.Severity < fault.Problem {
			prefix = strings.ToUpper(f.Severity.String())
		}
		text := f.String()
		if f.Fix != "" {
			text += "; fix: " + f.Fix
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", prefix, text)
	}
	if fault.WorstSeverity(found) >= fault.Problem {
		return codedError{errQuiet, exitUsage}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "The configuration is valid.")
	return err
}

// checkConfigAs runs "edgeway config check" again as the named user. If the user does not exist, ran is false and err
// is nil. If this process cannot start programs as that user, ran is false and err is not nil.
func checkConfigAs(cmd *cobra.Command, name, path string) (ran bool, err error) {
	id, err := credential(name)
	if _, missing := errors.AsType[user.UnknownUserError](err); missing {
		return false, nil // Edgeway was installed from a tarball
	}
	if err != nil {
		return false, err
	}
	child := exec.CommandContext(cmd.Context(), "/proc/self/exe", "config", "check", "--config", path)
	child.Stdout, child.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.SysProcAttr = &syscall.SysProcAttr{Credential: id, AmbientCaps: serviceCapabilities()}
	err = child.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return true, codedError{errQuiet, exit.ExitCode()}
	}
	return err == nil, err
}

// credential returns the identity of a user on this host, including all of the user's groups.
func credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", name, err)
	}
	var ids []uint32
	for _, id := range append([]string{u.Uid, u.Gid}, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		ids = append(ids, uint32(n))
	}
	return &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}, nil
}

// serviceCapabilities returns the capabilities that this process shares with edgeway.service (including its drop-ins)
// or with edgeway-bpf.service. None of the returned capabilities bypasses file permissions.
func serviceCapabilities() (out []uintptr) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if unix.Capget(&header, &have[0]) != nil {
		return nil
	}
	for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_BPF, unix.CAP_PERFMON} {
		if have[c/32].Permitted&(1<<(c%32)) != 0 {
			out = append(out, c)
		}
	}
	return out
}
