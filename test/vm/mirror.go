package vm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// debianMirror returns the URI of the Debian archive in the host's apt sources.
func debianMirror(ctx context.Context) (string, error) {
	uri, err := findMirror(ctx)
	if err != nil || uri != "" {
		return uri, err
	}
	// Without package lists, apt does not know the URIs of its archives.
	if out, err := exec.CommandContext(ctx, "apt-get", "update", "-qq").CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get update: %w: %s", err, out)
	}
	if uri, err = findMirror(ctx); err == nil && uri == "" {
		err = errors.New("this host's apt sources contain no Debian archive")
	}
	return uri, err
}

func findMirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(ORIGIN)|$(COMPONENT)|$(RELEASE)|$(REPO_URI)", "Identifier: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("this host's apt sources: %w", err)
	}
	return firstDebianArchive(string(out)), nil
}

// firstDebianArchive returns the URI of the first Debian archive in the output of "apt-get indextargets". It skips the
// archive for security updates, because that archive does not contain the other suites.
func firstDebianArchive(targets string) string {
	for _, line := range strings.Split(targets, "\n") {
		f := strings.Split(line, "|")
		if len(f) == 4 && f[0] == "Debian" && f[1] == "main" && !strings.Contains(f[2], "security") {
			return f[3]
		}
	}
	return ""
}

// aptSettings returns the host's apt settings for downloads (proxies, certificates, acceptance of expired archives) as
// options for mmdebstrap.
func aptSettings(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "--format", "%f \"%v\";%n",
		"Acquire").Output()
	if err != nil {
		return nil, fmt.Errorf("this host's apt settings: %w", err)
	}
	var options []string
	for _, line := range strings.Split(string(out), "\n") {
		for _, prefix := range []string{"Acquire::Check-", "Acquire::http::", "Acquire::https::", "Acquire::Retries"} {
			if strings.HasPrefix(line, prefix) {
				options = append(options, "--aptopt="+line)
			}
		}
	}
	return options, nil
}
