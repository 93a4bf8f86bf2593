package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"edgeway/daemon/text"
)

// version is Edgeway's version in a release build. The linker sets the variable (-X main.version=1.2.3). See build.
var version string

// buildInfo is the output of "version -o json".
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // the source commit, with "+dirty" if the source was modified
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func build() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "unreleased"
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if b.Revision != "" {
		b.Revision += dirty
	}
	return b
}

// String returns the version in the format that "edgeway version" and "edgeway --version" print.
func (b buildInfo) String() string {
	return fmt.Sprintf("%s (%s, %s)", b.Version, b.Go, b.Platform)
}

// Print prints the version on one line.
func (b buildInfo) Print(s *text.Screen) { s.PrintLine("edgeway version %s", b) }

func versionCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
	}
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return g.print(cmd, "Version", build(), out) }
	return cmd
}
