package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// variant is an implementation of iptables. Its name is part of the names of its programs.
type variant string

const (
	nft    variant = "nft"
	legacy variant = "legacy"
)

var variants = []variant{nft, legacy}

// minVersion is the oldest version of each that will do: iptables-restore has --wait and MASQUERADE has
// --random-fully since 1.6.2, and 1.8.0 is the first whose programs say their variant.
var minVersion = map[variant]version{nft: {1, 8, 0}, legacy: {1, 6, 2}}

type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) less(o version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

// programs are the paths of one variant's programs for one family.
type programs struct{ list, restore, save string }

// findVariant gives the variant to use and checks its programs. Where want is empty it is the one in which
// other programs have rules, else the one in which this backend has, else what the program iptables is.
func findVariant(ctx context.Context, want variant) (variant, error) {
	if want != "" {
		return want, checkPrograms(ctx, want)
	}
	var usable []variant
	var errs []error
	for _, v := range variants {
		if err := checkPrograms(ctx, v); err != nil {
			errs = append(errs, err)
			continue
		}
		usable = append(usable, v)
	}
	switch len(usable) {
	case 0:
		if v, _, err := askVersion(ctx, "iptables"); err == nil && v == nft {
			return "", errs[0]
		}
		return "", errs[1]
	case 1:
		return usable[0], nil
	}
	return preferred(ctx)
}

// preferred chooses between two variants that could both be used.
func preferred(ctx context.Context) (variant, error) {
	var foreign, own []variant
	for _, v := range variants {
		c, err := takeCensus(ctx, v)
		if errors.Is(err, fs.ErrPermission) { // iptables-legacy's rules, for a daemon that is not root
			continue
		}
		if err != nil {
			return "", fmt.Errorf("rules of other programs: %w", err)
		}
		if len(c.foreign) > 0 {
			foreign = append(foreign, v)
		}
		if c.own > 0 {
			own = append(own, v)
		}
	}
	switch {
	case len(foreign) == 1:
		return foreign[0], nil
	case len(foreign) == 0 && len(own) == 1:
		return own[0], nil
	}
	v, _, err := askVersion(ctx, "iptables")
	if errors.Is(err, exec.ErrNotFound) { // only the long names are there
		return nft, nil
	}
	return v, err
}

// hostFamilies are the families that the kernel serves. One started with ipv6.disable=1 has no such file.
func hostFamilies() []plan.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []plan.Family{plan.IPv4}
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}

func checkPrograms(ctx context.Context, v variant) error {
	for _, f := range hostFamilies() {
		if _, err := findPrograms(ctx, v, f); err != nil {
			return err
		}
	}
	return nil
}

// findPrograms looks for iptables-nft and its like, then for plain names that are of the variant. The
// error wraps proxiers.ErrUnsupported.
func findPrograms(ctx context.Context, v variant, f plan.Family) (programs, error) {
	name := programName(f) + "-" + string(v)
	p, err := lookPrograms(name)
	if err != nil {
		if p, err = lookPrograms(programName(f)); err != nil {
			return programs{}, fmt.Errorf("%w: %w: install the package iptables", proxiers.ErrUnsupported, err)
		}
	}
	is, number, err := askVersion(ctx, p.list)
	switch {
	case err != nil:
		return programs{}, fmt.Errorf("%w: %w", proxiers.ErrUnsupported, err)
	case is != v:
		return programs{}, fmt.Errorf("%w: the program %s is missing, and %s is %s: install the package that has it",
			proxiers.ErrUnsupported, name, p.list, is)
	case number.less(minVersion[v]):
		return programs{}, fmt.Errorf("%w: %s is of version %s: upgrade the package iptables to %s or newer",
			proxiers.ErrUnsupported, p.list, number, minVersion[v])
	}
	return p, nil
}

func programName(f plan.Family) string {
	if f == plan.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

func lookPrograms(name string) (programs, error) {
	var paths [3]string
	for i, suffix := range []string{"", "-restore", "-save"} {
		var err error
		if paths[i], err = exec.LookPath(name + suffix); err != nil {
			return programs{}, fmt.Errorf("the program %s is missing", name+suffix)
		}
	}
	return programs{list: paths[0], restore: paths[1], save: paths[2]}, nil
}

var versionLine = regexp.MustCompile(`v(\d+)\.(\d+)(?:\.(\d+))?\s*(\(nf_tables\))?`)

// askVersion runs the main program, because -restore and -save have not always had --version. Before 1.8
// programs do not say that they are the legacy ones.
func askVersion(ctx context.Context, program string) (variant, version, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", version{}, fmt.Errorf("%s --version: %w", program, err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return "", version{}, fmt.Errorf("%s --version: no version in %q", program, strings.TrimSpace(string(out)))
	}
	var number version
	for i := range number {
		number[i], _ = strconv.Atoi(m[i+1]) // digits, or nothing: 0
	}
	if m[4] != "" {
		return nft, number, nil
	}
	return legacy, number, nil
}
