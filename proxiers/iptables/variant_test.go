package iptables

import (
	"errors"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

const says = "#!/bin/sh\necho 'iptables v"

// allPrograms has those of Debian.
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

// plainPrograms has only short names, of one variant.
func plainPrograms(v variant) map[string]string {
	m := map[string]string{}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-restore", "-save"} {
			m[name+suffix] = name + "-" + string(v) + suffix
		}
	}
	return m
}

func TestVariantIsTheOneThatOthersUse(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		restore(t, v, plan.IPv6, "mangle", "-A OUTPUT -j ACCEPT")
		checkVariant(t, "", v)
	})
}

func TestVariantIsTheOneThatWeUsed(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		writeOwn(t, v, plan.IPv4)
		checkVariant(t, "", v)
	})
}

func TestOthersRulesCountMoreThanOurs(t *testing.T) {
	newHost(t)
	writeOwn(t, nft, plan.IPv4)
	restore(t, legacy, plan.IPv4, tableFilter, ":DOCKER - [0:0]", "-A FORWARD -j DOCKER")
	checkVariant(t, "", legacy)
}

func TestVariantIsWhatIptablesIs(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		programs := allPrograms()
		programs["iptables"] = "iptables-" + string(v)
		onlyPrograms(t, programs)
		checkVariant(t, "", v)
		if before := registeredTables(t); strings.Contains(before, tableNAT) {
			t.Errorf("looking registered tables: %s", before)
		}
	})
}

func TestPlainProgramsOfOneVariant(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		onlyPrograms(t, plainPrograms(v))
		checkVariant(t, "", v)
		checkVariant(t, v, v)
		if err := testTools(t, v, plan.IPv6).restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\nCOMMIT\n")); err != nil {
			t.Error(err)
		}
		other := nft
		if v == nft {
			other = legacy
		}
		_, err := findVariant(t.Context(), other)
		if !errors.Is(err, proxiers.ErrUnsupported) || !strings.Contains(err.Error(), "iptables-"+string(other)) {
			t.Errorf("want an error that names the program that is missing, got %v", err)
		}
	})
}

func checkVariant(t *testing.T, want, expected variant) {
	t.Helper()
	got, err := findVariant(t.Context(), want)
	if err != nil || got != expected {
		t.Errorf("want %s, got %q, %v", expected, got, err)
	}
}

func TestProgramsThatWillNotDo(t *testing.T) {
	cases := []struct {
		name     string
		programs map[string]string
		want     variant
		message  string
	}{
		{name: "none", message: "install the package iptables"},
		{name: "none of that variant", want: legacy, message: "install the package iptables"},
		{name: "half", programs: map[string]string{"iptables": "", "iptables-save": ""}, message: "iptables-restore is missing"},
		{name: "old", programs: old("1.6.1"), message: "upgrade the package iptables to 1.6.2"},
		{name: "too old for nft", programs: old("1.6.2"), want: nft, message: "iptables-nft is missing"},
		{name: "not iptables", programs: old("ersion"), message: "no version"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			newHost(t)
			onlyPrograms(t, c.programs)
			_, err := findVariant(t.Context(), c.want)
			if !errors.Is(err, proxiers.ErrUnsupported) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("want %q, got %v", c.message, err)
			}
			name := Name
			if c.want != "" {
				name = c.want.backend()
			}
			if err := testBackend(t, name).Probe(t.Context()); !errors.Is(err, proxiers.ErrUnsupported) {
				t.Errorf("probe: %v", err)
			}
		})
	}
}

// old makes programs that say only a version, as those before 1.8 did.
func old(number string) map[string]string {
	m := map[string]string{}
	for name := range plainPrograms(legacy) {
		m[name] = says + number + "'\n"
	}
	return m
}

func TestOldLegacyWillDo(t *testing.T) {
	newHost(t)
	onlyPrograms(t, old("1.6.2"))
	checkVariant(t, "", legacy)
}
