package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"edgeway/daemon"
	"edgeway/daemon/config"
)

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "edgeway.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestInvalidCommandLinesExitWith2(t *testing.T) {
	for _, args := range []string{
		"nothing", "config nothing", "config check extra", "config dump --nope", "version extra", "--nope",
		"config default --config",
		"doctor --trace", "doctor default/web", "doctor --connect default/web more",
	} {
		code, stdout, stderr := run(t, strings.Fields(args)...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "edgeway: ") ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("edgeway %s: exit %d, out %q, err %q", args, code, stdout, stderr)
		}
	}
}

func TestSuggestionForMisspeltCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"stauts":                    `"status"`,
		"expl":                      `"explain"`,
		"config chek":               `"check"`,
		"anything":                  `"edgeway --help"`,
		"status --jsno":             `"--json"`,
		"status --conifg x":         `"--config"`,
		"plan -json":                `"--json"`,
		"explain host":              `"edgeway explain source destination[/protocol]"`,
		"services a/b c/d":          `"edgeway services [namespace | namespace/name]"`,
		"plan a/b c/d":              `"edgeway plan [namespace/name]"`,
		"config check --everything": `"edgeway config check --help"`,
	} {
		code, stdout, stderr := run(t, strings.Fields(args)...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "edgeway: ") ||
			!strings.HasSuffix(strings.TrimRight(stderr, "?\n"), " "+want) ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("edgeway %s: exit %d, out %q, err %q", args, code, stdout, stderr)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	code, flag, stderr := run(t, "--version")
	if _, command, _ := run(t, "version"); code != exitOK || stderr != "" || flag != command ||
		!strings.HasPrefix(flag, "edgeway version ") {
		t.Errorf("exit %d, err %q: %q and %q", code, stderr, flag, command)
	}
}

func TestInvalidConfigurationExitsWith2(t *testing.T) {
	name := configFile(t, "version = 1\n[proxy]\nmasquerade_bit = 99\nnope = 1\n")
	for _, command := range []string{"check", "dump"} {
		code, stdout, stderr := run(t, "config", command, "--config", name)
		first, second, _ := strings.Cut(stderr, "\n")
		if code != exitUsage || stdout != "" ||
			!strings.HasPrefix(first, "edgeway: "+name+":3: proxy.masquerade_bit: ") ||
			!strings.HasPrefix(second, "edgeway: "+name+":4: proxy.nope: ") {
			t.Errorf("config %s: exit %d, out %q, err %q", command, code, stdout, stderr)
		}
	}
}

func TestConfigCheckOmitsIgnoredNotices(t *testing.T) {
	const text = "version = 1\nsource.kube.kubeconfig = '/dev/null/none'\nipvs.scheduler = 'wrr'\n"
	for text, want := range map[string]bool{text: true, text + "doctor.ignore = ['backend-key', 'kubeconfig']": false} {
		_, _, stderr := run(t, "config", "check", "--config", configFile(t, text))
		if strings.Contains(stderr, "ipvs.scheduler") != want || !strings.Contains(stderr, "edgeway: kubeconfig") {
			t.Errorf("%s: the notice is shown: want %t, and the problem; got:\n%s", text, want, stderr)
		}
	}
}

func TestConfigDumpShowsEffectiveConfiguration(t *testing.T) {
	name := configFile(t, "version = 1\nsource.file.paths = ['m']\nproxy.masquerade_bit = 3")
	code, stdout, stderr := run(t, "config", "dump", "--config", name)
	want, err := daemon.LoadConfig(name)
	if err != nil {
		t.Fatal(err)
	}
	if code != exitOK || stderr != "" || stdout != config.Dump(want) ||
		!strings.Contains(stdout, "masquerade_bit = 3\n") {
		t.Errorf("exit %d, err %q, out:\n%s", code, stderr, stdout)
	}
}

func TestConfigDefaultEqualsShippedFile(t *testing.T) {
	shipped, err := os.ReadFile("../../etc/edgeway/edgeway.toml")
	if err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := run(t, "config", "default"); code != exitOK || stdout != string(shipped) {
		t.Errorf("exit %d, out:\n%s", code, stdout)
	}
}

func TestManualListsCommandsFlagsAndExitCodes(t *testing.T) {
	data, err := os.ReadFile("../../packaging/man/edgeway.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(data)
	root, _ := rootCommand(io.Discard, io.Discard)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && !strings.Contains(manual, sub.Name()) {
				t.Errorf("no command %q in the manual", sub.CommandPath())
			}
			visit(sub)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(manual, "Fl Fl "+f.Name) {
				t.Errorf("no flag --%s of %q in the manual", f.Name, cmd.CommandPath())
			}
		})
	}
	visit(root)
	for _, code := range []string{"0", "1", "2", "3", "4"} {
		if !strings.Contains(manual, ".It "+code+"\n") {
			t.Errorf("no exit code %s in the manual", code)
		}
	}
}
