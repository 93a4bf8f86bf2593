package xtables

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// The cases are error messages from several versions of the iptables programs.
func TestRefusals(t *testing.T) {
	cases := []struct {
		exit    int
		text    string
		refused bool
		want    string
	}{
		{1, "iptables-restore: line 4 failed", true, "line 4 failed (exit status 1)"},
		{1, "iptables-restore: line 3 failed: No chain/target/match by that name.", true, "line 3 failed: No chain/target/match by that name."},
		{2, "iptables-restore v1.8.7 (legacy): host/network `x' not found\nError occurred at line: 3\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.", true, `host/network `},
		{4, "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain KUBE-X", true, "line 3: RULE_APPEND failed"},
		{4, "iptables-restore v1.8.7 (nf_tables): \nline 3: RULE_APPEND failed (Device or resource busy): rule in chain KUBE-X\nline 4: CHAIN_USER_DEL failed (Device or resource busy): chain KUBE-X", true, "line 3: RULE_APPEND"},
		{4, "iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)", false, "generation id"},
		{4, "line 3: RULE_APPEND failed (Cannot allocate memory): rule in chain KUBE-X", false, "Cannot allocate memory"},
		{4, "Can't lock /run/lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.", false, "Another app is currently holding"},
		{4, "Fatal: can't open lock file /run/lock: Permission denied", false, "can't open lock file"},
		{2, "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\nError occurred at line: 1", false, "unable to initialize"},
		{3, "iptables-restore v1.8.7 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)", false, "do you need to insmod?"},
		{111, "", false, "exit status 111"},
	}
	for _, c := range cases {
		tools := &Tools{Variant: NFT, Family: plan.IPv4}
		tools.programs.restore = script(t, fmt.Sprintf("cat >&2 <<'END'\n%s\nEND\nexit %d\n", c.text, c.exit))
		err := tools.Restore(t.Context(), []byte("*nat\n:KUBE-X - [0:0]\n-A KUBE-X -j ACCEPT\nCOMMIT\n"))
		if errors.Is(err, proxiers.ErrRefused) != c.refused {
			t.Errorf("%q: refused %v", c.text, !c.refused)
		}
		if text := fmt.Sprint(err); !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%q: got %q, want one line with %q", c.text, text, c.want)
		}
	}
}

func TestMessagesAreShort(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 1<<20)
	if got := message(long); len(got) > maxMessage+len("…") {
		t.Errorf("message of %d bytes", len(got))
	}
}
