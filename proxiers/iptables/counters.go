package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// chainPackets counts the packets that matched the rules of one chain. A chain that is not there has
// counted nothing.
func (t *tools) chainPackets(ctx context.Context, table, chain string) (uint64, error) {
	exists, err := t.hasTable(table)
	if err != nil || !exists {
		return 0, err
	}
	cmd := t.command(ctx, t.programs.list, "-t", table, "-S", chain, "-v")
	out, err := cmd.Output()
	if err != nil {
		if missingChain(err) {
			return 0, nil
		}
		return 0, runError(ctx, cmd, err)
	}
	return sumPackets(string(out))
}

// missingChain: iptables-nft 1.8.9 calls a chain that is not there incompatible.
func missingChain(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != exitOther {
		return false
	}
	text := string(exit.Stderr)
	return strings.Contains(text, "No chain/target/match by that name") || strings.Contains(text, "is incompatible")
}

// sumPackets adds up the first number after each rule's "-c": the last one, as a comment comes before it.
func sumPackets(listing string) (uint64, error) {
	var sum uint64
	for line := range strings.Lines(listing) {
		i := strings.LastIndex(line, " -c ")
		if i < 0 || !strings.HasPrefix(line, "-A ") {
			continue
		}
		number, _, _ := strings.Cut(line[i+len(" -c "):], " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("packets of %q: %w", strings.TrimSpace(line), err)
		}
		sum += n
	}
	return sum, nil
}
