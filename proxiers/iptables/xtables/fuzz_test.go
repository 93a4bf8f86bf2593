package xtables

import (
	"errors"
	"strings"
	"testing"
)

// FuzzFailure calls failure with random messages. The returned error must be one short line.
func FuzzFailure(f *testing.F) {
	for _, text := range []string{
		"iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_INSERT failed (Invalid argument): rule in chain KUBE-SVC-A\n",
		"iptables-restore: line 4 failed\n", "Error occurred at line: 99999999999999999999\n", "line: -1",
		"# Warning\n\nCan't lock x\n",
		"\x1b]0;owned\x07\x1b[2J", strings.Repeat("x", 1000), strings.Repeat("iptables: ", 100), "a\rb\nc",
	} {
		f.Add([]byte(text), 1)
		f.Add([]byte(text), 4)
	}
	f.Fuzz(func(t *testing.T, messages []byte, exit int) {
		err := call{
			Path:  "/usr/sbin/iptables-restore",
			Stdin: []byte("*nat\nCOMMIT\n"),
		}.failure(errors.New("exit status 1"), exit, messages)
		if text := err.Error(); len(text) > maxMessage+200 || strings.Contains(text, "\n") {
			t.Errorf("%q of %q", text, messages)
		}
	})
}
