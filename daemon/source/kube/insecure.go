package kube

import (
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"

	"edgeway/proxiers/fault"
)

// serverFaults returns the kubeconfig faults that allow a man in the middle to impersonate the API server.
func serverFaults(config *rest.Config, kubeconfig string) (out []fault.Fault) {
	if config.Insecure {
		out = append(out, fault.New(insecureID, fault.Warning,
			"kubectl config set-cluster NAME --insecure-skip-tls-verify=false --certificate-authority=ca.crt "+
				"--embed-certs --kubeconfig "+kubeconfig,
			"insecure-skip-tls-verify is set: anyone between this host and the API server can read the "+
				"credentials and change all Services"))
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil || server.Scheme != "http" {
		return out
	}
	addr, err := netip.ParseAddr(server.Hostname())
	if server.Hostname() != "localhost" && (err != nil || !addr.Unmap().IsLoopback()) {
		out = append(out, fault.New(insecureID, fault.Warning,
			"kubectl config set-cluster NAME --server=https://ADDRESS:6443 --kubeconfig "+kubeconfig,
			"The connection to %s does not use TLS: Edgeway sends no credentials, and anyone on the path can change "+
				"all Services",
			config.Host))
	}
	return out
}

func insecureFiles(files []file) (out []fault.Fault) {
	for _, f := range files {
		sys, ok := f.info.Sys().(*syscall.Stat_t)
		if !ok || !f.info.Mode().IsRegular() {
			continue
		}
		mode := f.info.Mode().Perm()
		if isOwnGroup(sys.Gid) {
			mode &^= 0o040
		}
		if sys.Gid == 0 {
			mode &^= 0o020
		}
		switch {
		case mode&0o022 != 0:
			out = append(out, fault.New(insecureID, fault.Warning, "chmod go-w "+f.path,
				"%s is writable by %s (mode %04o): a changed file can redirect this host to another server", f.path,
				others(mode, 0o002, sys.Gid), f.info.Mode().Perm()))
		case f.secret && mode&0o044 != 0:
			out = append(out, fault.New(insecureID, fault.Warning,
				fmt.Sprintf("chgrp %s %s && chmod 640 %s", serviceGroup, f.path, f.path),
				"%s holds a secret and is readable by %s (mode %04o)", f.path, others(mode, 0o004, sys.Gid),
				f.info.Mode().Perm()))
		}
	}
	return out
}

func others(mode, everybody os.FileMode, gid uint32) string {
	if mode&everybody != 0 {
		return "every user"
	}
	return "the group " + groupName(gid)
}

// serviceGroup is the group of the packaged service. isOwnGroup compares the group's name and not only the process's
// group ID, because root usually validates the configuration. Members of statusGroup, the service's other group, may
// request the service's status.
const (
	serviceGroup = "edgeway"
	statusGroup  = "edgeway-status"
)

// isOwnGroup reports whether only root and the daemon are members of the group.
func isOwnGroup(gid uint32) bool {
	name := groupName(gid)
	return gid == 0 || name == serviceGroup || int(gid) == os.Getegid() && name != statusGroup
}

func groupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return strings.ToValidUTF8(g.Name, "")
	}
	return id
}
