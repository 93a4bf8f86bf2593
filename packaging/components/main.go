// Command components writes a bill of materials (CycloneDX 1.5, JSON) for a Go program, and the notices that the
// licenses of the program's modules require. The command reads the list of modules from the build information that the
// linker stored in the program.
//
//	go run ./packaging/components PROGRAM VERSION FOLDER
//
// The command writes the files sbom.cdx.json and third-party-notices to FOLDER. The output is reproducible.
// SOURCE_DATE_EPOCH sets the timestamp.
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: components PROGRAM VERSION FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "components:", err)
		os.Exit(1)
	}
}

func write(program, version, folder string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("modules: %w", err)
	}
	sbom, err := json.MarshalIndent(billOfMaterials(info, version, time.Unix(epoch, 0).UTC()), "", "  ")
	if err != nil {
		return err
	}
	text, err := notices(info)
	if err != nil {
		return fmt.Errorf("notices: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "sbom.cdx.json"), append(sbom, '\n'), 0o644),
		os.WriteFile(filepath.Join(folder, "third-party-notices"), text, 0o644),
	)
}

// bom and component contain the CycloneDX fields that apply to a Go program.
type bom struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func billOfMaterials(info *debug.BuildInfo, version string, at time.Time) bom {
	out := bom{Format: "CycloneDX", Spec: "1.5", Version: 1}
	out.Metadata.Timestamp = at.Format(time.RFC3339)
	out.Metadata.Component = moduleComponent("application", info.Main.Path, version)
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" {
			out.Metadata.Component.Properties = append(out.Metadata.Component.Properties,
				property{"go:" + s.Key, s.Value})
		}
	}
	out.Components = append(out.Components, moduleComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range linkedModules(info) {
		c := moduleComponent("library", m.Path, m.Version)
		c.Properties = []property{{"go:sum", m.Sum}}
		out.Components = append(out.Components, c)
	}
	return out
}

// moduleComponent returns the component for a Go module. A package URL (purl) encodes a plus sign in the version as
// %2B.
func moduleComponent(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

// linkedModules returns the modules that are linked into the program, in the linker's order (by path).
func linkedModules(info *debug.BuildInfo) []*debug.Module {
	var out []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, m)
	}
	return out
}

// noticeFile matches the names of license files, and of notices that a license requires distributors to include.
var noticeFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notices returns the concatenated license files of Go and the linked modules. It returns an error if a module has no
// license file.
func notices(info *debug.BuildInfo) ([]byte, error) {
	root, err := output("go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	// Ignore the error, because Debian's Go has no license file in GOROOT. The module golang.org/x/sys has the same
	// license text as Go.
	_ = notice(&out, "Go "+info.GoVersion, strings.TrimSpace(root))
	for _, m := range linkedModules(info) {
		found, err := output("go", "mod", "download", "-json", m.Path+"@"+m.Version)
		if err != nil {
			return nil, err
		}
		var at struct{ Dir string }
		if err := json.Unmarshal([]byte(found), &at); err != nil {
			return nil, err
		}
		if err := notice(&out, m.Path+" "+m.Version, at.Dir); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func notice(out io.Writer, title, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if !e.Type().IsRegular() || !noticeFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(out, "==== %s: %s\n\n%s\n\n", title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s has no license file in %s", title, folder)
	}
	return nil
}

func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}
