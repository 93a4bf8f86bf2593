package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// saved is what is in one table.
type saved struct {
	// builtin has the rules of each built-in chain in their order, each the text after "-A CHAIN ".
	builtin map[string][]string
	// policies of the built-in chains.
	policies map[string]string
	// chains are the names of all others, in their order.
	chains []string
	// rules is the number of those in chains with names of ours.
	rules int
	// ownJumps is the number of rules in built-in chains that are this backend's.
	ownJumps int
	// foreignJumps is the number of other rules, outside of chains with names of ours, that lead to one: a
	// kube-proxy's.
	foreignJumps int
	// foreign counts the rules of others by chain; one in a built-in chain that leads to another chain
	// counts there.
	foreign map[string]int
}

// save reads one table. One that does not exist is empty, and is not made by looking.
func (t *tools) save(ctx context.Context, table string) (*saved, error) {
	s := &saved{builtin: map[string][]string{}, policies: map[string]string{}, foreign: map[string]int{}}
	exists, err := t.hasTable(table)
	if err != nil || !exists {
		return s, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := t.command(ctx, t.programs.save, "-t", table)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start of %s: %w", t.programs.save, err)
	}
	parseErr := s.parse(out)
	if parseErr != nil {
		cancel()
	}
	if err := cmd.Wait(); err != nil && parseErr == nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			exit.Stderr = messages.Bytes()
		}
		return nil, runError(ctx, cmd, err)
	}
	return s, parseErr
}

// parse reads lines ":CHAIN POLICY [0:0]" and, after all of them, "-A CHAIN rule".
func (s *saved) parse(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, ":"):
			words := strings.Fields(line[1:])
			if len(words) < 2 {
				return fmt.Errorf("chain without policy in %q", line)
			}
			s.addChain(words[0], words[1])
		case strings.HasPrefix(line, "-A "):
			chain, text, _ := strings.Cut(line[len("-A "):], " ")
			s.addRule(chain, text)
		}
	}
	return lines.Err()
}

func (s *saved) addChain(name, policy string) {
	if policy == "-" {
		s.chains = append(s.chains, name)
		return
	}
	s.policies[name] = policy
}

func (s *saved) addRule(chain, text string) {
	if ours(chain) {
		s.rules++
		return
	}
	_, builtin := s.policies[chain]
	to := target(text)
	if builtin {
		s.builtin[chain] = append(s.builtin[chain], text)
		if ownJump(text) {
			s.ownJumps++
			return
		}
	}
	if ours(to) {
		s.foreignJumps++
	}
	s.foreign[blame(chain, to, builtin)]++
}

// blame gives the chain whose name tells best who wrote a rule.
func blame(chain, to string, builtin bool) string {
	if builtin && to != "" {
		return to
	}
	return chain
}

// ownJump says that a rule of a built-in chain is this backend's.
func ownJump(text string) bool {
	_, rest, ok := strings.Cut(text, "--comment ")
	if !ok || !ours(target(text)) {
		return false
	}
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		rest, _, _ = strings.Cut(quoted, `"`)
	} else {
		rest, _, _ = strings.Cut(rest, " ")
	}
	return strings.Contains(rest, owner)
}

// verdicts end a packet's way in a built-in chain: they are no chains.
var verdicts = map[string]bool{"ACCEPT": true, "DROP": true, "RETURN": true, "QUEUE": true}

// target gives the chain that a rule leads to, or the target extension; empty for a verdict.
func target(text string) string {
	for _, option := range []string{"-j ", "-g "} {
		i := strings.LastIndex(" "+text, " "+option)
		if i < 0 {
			continue
		}
		to, _, _ := strings.Cut(text[i+len(option):], " ")
		if verdicts[to] {
			return ""
		}
		return to
	}
	return ""
}
