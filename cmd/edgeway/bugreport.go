package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edgeway/daemon"
	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/doctor/nft"
	"edgeway/daemon/text"
)

func bugReportCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "bugreport file",
		Short: "Write an archive for a bug report, without secrets",
		Long: "Write an archive (.tar.gz) for a bug report. The archive contains the daemon's state and " +
			"faults, the\ndoctor's findings, the configuration on disk, the rules in the kernel, program and " +
			"kernel versions, and the last lines\nof the log. Run the command as root, because other users " +
			"cannot read all of this information. The command\nchanges nothing, and works without a running " +
			"daemon.\n\nThe command replaces tokens, passwords and keys with REDACTED, but does not " +
			"replace the names and addresses of\nthis host and its Services. Only the user who runs the " +
			"command can read the archive. If the command cannot collect\nsome information, the file errors.txt " +
			"in the archive contains the error.",
		Example: "  sudo edgeway bugreport /root/edgeway.tar.gz",
		Args:    between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.writeBugReport(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
}

// part is a file in a bug report.
type part struct {
	name, doc string
	// read returns the file's content. If the error is not nil, the content is incomplete.
	read func(context.Context) ([]byte, error)
}

const (
	// partTimeout is the time limit for reading one part of a bug report. maxPart is the maximum size, in bytes, of a
	// program's output.
	partTimeout = 2 * time.Minute
	maxPart     = 4 << 20
)

func (g *globals) bugReportParts() []part {
	socket, _ := g.socket()
	client := control.NewClient(socket)
	return append([]part{
		{"status.json", "the daemon's state", asJSON(func(ctx context.Context) (any, error) {
			return client.Status(ctx)
		})},
		{"services.json", "the Services", asJSON(func(ctx context.Context) (any, error) {
			return client.Services(ctx, "")
		})},
		{"doctor.json", "the doctor's findings", asJSON(func(ctx context.Context) (any, error) {
			h, found := g.examine(ctx)
			return doctor.NewReport(h, found), nil
		})},
		{"config.toml", "the configuration on disk", func(context.Context) ([]byte, error) {
			c, err := daemon.LoadConfig(g.config)
			if err != nil {
				return nil, err
			}
			return []byte(config.Dump(c)), nil
		}},
		{"versions.txt", "program and kernel versions", versions},
	}, programParts()...)
}

func asJSON(read func(context.Context) (any, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		value, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(value, "", "  ")
	}
}

// programParts returns the parts that contain the output of installed programs.
func programParts() (out []part) {
	for _, p := range [][2]string{
		{"nft.txt", "nft list ruleset"},
		{"iptables.txt", "iptables-save"},
		{"ip6tables.txt", "ip6tables-save"},
		{"iptables-legacy.txt", "iptables-legacy-save"},
		{"ip6tables-legacy.txt", "ip6tables-legacy-save"},
		{"ipvs.txt", "ipvsadm -Ln"},
		{"journal.txt", "journalctl --no-pager -o short-iso -n 500 -u edgeway"},
	} {
		args := strings.Fields(p[1])
		_, missing := exec.LookPath(args[0])
		if _, unloaded := os.Stat("/proc/net/ip_vs"); missing != nil || args[0] == "ipvsadm" && unloaded != nil {
			continue // ipvsadm would load the ip_vs module
		}
		out = append(out, part{p[0], "the output of " + args[0], func(ctx context.Context) ([]byte, error) {
			return nft.RunProgram(ctx, maxPart, "", args[0], args[1:]...)
		}})
	}
	return out
}

// versions returns the versions of Edgeway, the kernel, the distribution and, if installed, nft, iptables, ipvsadm and
// systemctl.
func versions(ctx context.Context) ([]byte, error) {
	out := strings.TrimSpace(fmt.Sprintf("edgeway version %s %s", build(), build().Revision)) + "\n"
	var failed []error
	for _, path := range []string{"/proc/version", "/etc/os-release"} {
		text, err := doctor.Kernel{}.Read(path)
		out, failed = out+text+"\n", append(failed, err)
	}
	for _, program := range []string{"nft", "iptables", "ipvsadm", "systemctl"} {
		if _, err := exec.LookPath(program); err != nil {
			continue
		}
		raw, err := nft.RunProgram(ctx, maxPart, "", program, "--version")
		line, _, _ := strings.Cut(string(raw), "\n")
		out, failed = out+program+": "+line+"\n", append(failed, err)
	}
	return []byte(out), errors.Join(failed...)
}

type bugReport struct {
	redactor
	tar      *tar.Writer
	contents []string
	errors   []string
}

// writeBugReport writes the archive to path and a list of the archive's files to out.
func (g *globals) writeBugReport(ctx context.Context, path string, out io.Writer) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists: choose another name", path)
	}
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(file)
	r := &bugReport{redactor: newRedactor(g.kubeconfigs()...), tar: tar.NewWriter(zip)}
	err = errors.Join(r.writeParts(ctx, g.bugReportParts()), r.tar.Close(), zip.Close(), file.Close())
	if err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = fmt.Fprintf(out, "wrote %s (readable only by the current user):\n%s", path, strings.Join(r.contents, ""))
	for _, line := range r.errors {
		fmt.Fprintf(out, "  not read: %s\n", line)
	}
	fmt.Fprintf(out, "The command replaced tokens, passwords and keys with %s.\nThe command did not replace "+
		"names and addresses: check the files before you send the archive.\n", redacted)
	return err
}

// kubeconfigs returns the paths of the kubeconfigs that may contain secrets. The list always includes the path that the
// README uses, because Edgeway cannot read the kubeconfig's path from an invalid configuration.
func (g *globals) kubeconfigs() []string {
	paths := []string{filepath.Join(filepath.Dir(g.config), "kubeconfig")}
	if c, err := daemon.LoadConfig(g.config); err == nil {
		paths = append(paths, c.Source.Kube.Kubeconfig)
	}
	return paths
}

// writeParts reads all parts and writes them to the archive. writeParts returns an error if ctx is done or if it cannot
// write the archive. If a part is unreadable, writeParts adds a line to errors.txt.
func (r *bugReport) writeParts(ctx context.Context, parts []part) error {
	for _, p := range parts {
		limited, cancel := context.WithTimeout(ctx, partTimeout)
		content, err := p.read(limited)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.errors = append(r.errors, r.redact(text.CleanLine(p.name+": "+err.Error())))
		}
		if err == nil || len(content) > 0 {
			if err := r.write(p.name, p.doc, string(content)); err != nil {
				return err
			}
		}
	}
	if len(r.errors) == 0 {
		return nil
	}
	return r.write("errors.txt", "the reasons why the command could not collect some information",
		strings.Join(r.errors, "\n")+"\n")
}

// write redacts the secrets in a file and adds the file to the archive.
func (r *bugReport) write(name, doc, content string) error {
	if strings.HasSuffix(name, ".json") {
		content = r.redactJSON(content)
	} else {
		content = r.redact(content)
	}
	content = text.Clean(content)
	r.contents = append(r.contents, fmt.Sprintf("  %-20s %8d bytes  %s\n", name, len(content), doc))
	header := &tar.Header{
		Name: "edgeway-bugreport/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: time.Now(),
	}
	if err := r.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(r.tar, content)
	return err
}
