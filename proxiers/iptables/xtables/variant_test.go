package xtables

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

const says = "#!/bin/sh\necho 'iptables v"

func allPrograms() map[string]string {
	m := map[string]string{}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, v := range []string{"", "-nft", "-legacy"} {
			for _, suffix := range []string{"", "-restore", "-save"} {
				m[name+v+suffix] = ""
			}
		}
	}
	return m
}

func plainPrograms(v Variant) map[string]string {
	m := map[string]string{}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-restore", "-save"} {
			m[name+suffix] = name + "-" + string(v) + suffix
		}
	}
	return m
}

// If both variants are usable, Choose returns the variant of the iptables program, regardless of the existing rules.
func TestVariantFollowsIptables(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		programs := allPrograms()
		programs["iptables"] = "iptables-" + string(v)
		iptablestest.RestrictPrograms(t, programs)
		for _, other := range Variants() {
			if other != v {
				iptablestest.Restore(t, other, plan.IPv4, NAT,
					`-A OUTPUT -m comment --comment "edgeway: Services" -j ACCEPT`)
			}
		}
		before := registeredTables(t)
		wantChoice(t, v)
		if after := registeredTables(t); !slices.Equal(before, after) {
			t.Errorf("tables before %s, after %s", before, after)
		}
	})
}

func TestVariantWithOnlyLongNames(t *testing.T) {
	iptablestest.NewHost(t)
	programs := allPrograms()
	for name := range plainPrograms(NFT) {
		delete(programs, name)
	}
	iptablestest.RestrictPrograms(t, programs)
	wantChoice(t, NFT)
}

// The iptables program belongs to the other variant, whose remaining programs are missing.
func TestOnlyUsableVariant(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		programs := map[string]string{"iptables": map[Variant]string{NFT: "iptables-legacy", Legacy: "iptables-nft"}[v]}
		for name := range allPrograms() {
			if strings.Contains(name, "-"+string(v)) {
				programs[name] = ""
			}
		}
		iptablestest.RestrictPrograms(t, programs)
		wantChoice(t, v)
	})
}

func TestPlainProgramsOfOneVariant(t *testing.T) {
	iptablestest.ForEachVariant(t, Variants(), func(t *testing.T, v Variant) {
		iptablestest.RestrictPrograms(t, plainPrograms(v))
		wantChoice(t, v)
		if err := testTools(t, v, plan.IPv6).Restore(t.Context(),
			[]byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n")); err != nil {
			t.Error(err)
		}
		other := map[Variant]Variant{NFT: Legacy, Legacy: NFT}[v]
		_, err := Open(t.Context(), other, plan.IPv4)
		if !errors.Is(err, proxiers.ErrUnsupported) ||
			!strings.Contains(err.Error(), "install the iptables package, version 1.8 or newer (Fedora, RHEL: iptables-"+string(other)) {
			t.Errorf("want an error that names the package of the programs that are missing, got %v", err)
		}
	})
}

func wantChoice(t *testing.T, want Variant) {
	t.Helper()
	if got, err := Choose(t.Context()); err != nil || got != want {
		t.Errorf("want %s, got %q, %v", want, got, err)
	}
}

func TestUnusablePrograms(t *testing.T) {
	cases := []struct {
		name     string
		programs map[string]string
		want     Variant
		message  string
	}{
		{name: "none", message: "install the iptables package"},
		{name: "none of that variant", want: Legacy, message: "install the iptables package"},
		{name: "half", programs: map[string]string{"iptables": "", "iptables-save": ""}, message: "iptables-restore is missing"},
		{name: "old", programs: oldPrograms("1.6.1"), message: "upgrade the iptables package to 1.6.2"},
		{name: "too old for nft", programs: oldPrograms("1.6.2"), want: NFT, message: "iptables-nft is missing"},
		{name: "not iptables", programs: oldPrograms("ersion"), message: "no version"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			iptablestest.NewHost(t)
			iptablestest.RestrictPrograms(t, c.programs)
			var err error
			if c.want == "" {
				_, err = Choose(t.Context())
			} else {
				_, err = Open(t.Context(), c.want, plan.IPv4)
			}
			if !errors.Is(err, proxiers.ErrUnsupported) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("want %q, got %v", c.message, err)
			}
		})
	}
}

// oldPrograms returns programs that print their version without the variant, like the iptables programs before 1.8.
func oldPrograms(number string) map[string]string {
	m := map[string]string{}
	for name := range plainPrograms(Legacy) {
		m[name] = says + number + "'\n"
	}
	return m
}

func TestOldLegacyIsUsable(t *testing.T) {
	iptablestest.NewHost(t)
	iptablestest.RestrictPrograms(t, oldPrograms("1.6.2"))
	wantChoice(t, Legacy)
}

func FuzzVersion(f *testing.F) {
	for _, line := range []string{
		"iptables v1.8.9 (nf_tables)\n", "iptables v1.8.7 (legacy)", "ip6tables v1.6.2",
		"v1.99999999999", "version",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		v, number, err := parseVersion(line)
		if err != nil {
			if len(err.Error()) > 5*maxMessage || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: error %q", line, err)
			}
			return
		}
		if min(number[0], number[1], number[2]) < 0 || (v == NFT) != strings.Contains(line, "(nf_tables)") && v == NFT {
			t.Errorf("%q is %s %s", line, v, number)
		}
		text := "iptables v" + number.String()
		if v == NFT {
			text += " (nf_tables)"
		}
		if again, same, err := parseVersion(text); again != v || same != number || err != nil {
			t.Errorf("%q, printed as %q, is %s %s, %v", line, text, again, same, err)
		}
	})
}

// If the kernel kills a program because memory is exhausted, the error does not wrap ErrUnsupported. An error that
// wraps ErrUnsupported causes Edgeway to use another backend until the next reload.
func TestKilledProgramIsNotUnsupported(t *testing.T) {
	iptablestest.RestrictPrograms(t, map[string]string{
		"iptables-nft": "#!/bin/sh\nkill -KILL $$\n", "iptables-nft-restore": "", "iptables-nft-save": "",
	})
	if _, err := Open(t.Context(), NFT, plan.IPv4); err == nil || errors.Is(err, proxiers.ErrUnsupported) {
		t.Errorf("killed: %v", err)
	}
}
