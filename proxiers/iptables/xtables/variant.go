package xtables

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/program"
	"edgeway/proxiers/plan"
)

// Variant is an implementation of iptables. The names of a variant's programs contain the variant's name.
type Variant string

// The variants of iptables.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// Variants returns all variants.
func Variants() []Variant { return []Variant{NFT, Legacy} }

type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// minVersion is the first version with --wait in iptables-restore and --random-fully in MASQUERADE. Version 1.8.0 is
// the first version with the NFT variant.
var minVersion = version{1, 6, 2}

// Choose returns the variant of the program named iptables (a link on Debian), because other programs on the host also
// use this program. If there is no program named iptables, Choose prefers NFT. If the preferred variant's programs are
// unusable, Choose returns the other variant. If no variant is usable, the error wraps proxiers.ErrUnsupported.
func Choose(ctx context.Context) (Variant, error) {
	first, _, err := askVersion(ctx, "iptables")
	if err != nil {
		first = NFT
	}
	if err = checkPrograms(ctx, first); err == nil {
		return first, nil
	}
	other := map[Variant]Variant{NFT: Legacy, Legacy: NFT}[first]
	if checkPrograms(ctx, other) == nil {
		return other, nil
	}
	return "", err
}

func checkPrograms(ctx context.Context, v Variant) error {
	for _, f := range proxiers.KernelFamilies() {
		if _, err := findPrograms(ctx, v, f); err != nil {
			return err
		}
	}
	return nil
}

type programs struct{ restore, save string }

// findPrograms searches for the programs with long names, such as iptables-nft-restore, and then for programs of the
// same variant with plain names. An error that is not transient wraps proxiers.ErrUnsupported.
func findPrograms(ctx context.Context, v Variant, f plan.Family) (programs, error) {
	plain := map[plan.Family]string{plan.IPv4: "iptables", plan.IPv6: "ip6tables"}[f]
	name := plain + "-" + string(v)
	main, p, err := lookPrograms(name)
	if err != nil {
		if main, p, err = lookPrograms(plain); err != nil {
			return p, fmt.Errorf("%w: %w: install the iptables package", proxiers.ErrUnsupported, err)
		}
	}
	is, number, err := askVersion(ctx, main)
	switch {
	case program.Transient(err):
		return p, fmt.Errorf("version of %s: %w", main, err)
	case err != nil:
		return p, fmt.Errorf("%w: version of %s: %w", proxiers.ErrUnsupported, main, err)
	case is != v:
		return p, fmt.Errorf("%w: the program %s is missing, and %s is the %s variant: install the iptables package, "+
			"version 1.8 or newer (Fedora, RHEL: iptables-%s)",
			proxiers.ErrUnsupported, name, main, is, v)
	case slices.Compare(number[:], minVersion[:]) < 0:
		return p, fmt.Errorf("%w: %s has version %s: upgrade the iptables package to %s or newer",
			proxiers.ErrUnsupported, main, number, minVersion)
	}
	return p, nil
}

func lookPrograms(name string) (main string, p programs, err error) {
	var paths [3]string
	for i, suffix := range []string{"", "-restore", "-save"} {
		if paths[i], err = exec.LookPath(name + suffix); err != nil {
			return "", programs{}, fmt.Errorf("the program %s is missing", name+suffix)
		}
	}
	return paths[0], programs{restore: paths[1], save: paths[2]}, nil
}

// askVersion runs the iptables program itself, because not every supported version of iptables-restore and
// iptables-save has the option --version.
func askVersion(ctx context.Context, program string) (Variant, version, error) {
	var out strings.Builder
	if err := (call{
		Path: program, Args: []string{"--version"}, Stdout: &out, Timeout: queryBound,
	}).run(ctx); err != nil {
		return "", version{}, err
	}
	return parseVersion(out.String())
}

var versionLine = regexp.MustCompile(`v(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?\s*(\(nf_tables\))?`)

// parseVersion parses a line such as "iptables v1.8.9 (nf_tables)". Programs before version 1.8, which are all legacy,
// do not print the variant.
func parseVersion(line string) (Variant, version, error) {
	m := versionLine.FindStringSubmatch(line)
	if m == nil {
		return "", version{}, fmt.Errorf("no version in %q", shorten(strings.TrimSpace(line)))
	}
	var number version
	for i := range number {
		number[i], _ = strconv.Atoi(m[i+1]) // digits, or "" for 0
	}
	if m[4] != "" {
		return NFT, number, nil
	}
	return Legacy, number, nil
}
