package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// tools are the programs of one variant and family. They run in the network namespace of the calling
// thread, and may be used from any goroutine.
type tools struct {
	variant  variant
	family   plan.Family
	programs programs
	// lock is nil for iptables-nft, which has none.
	lock *lock
}

// openTools finds the programs. The error wraps proxiers.ErrUnsupported.
func openTools(v variant, f plan.Family) (*tools, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := findPrograms(ctx, v, f)
	if err != nil {
		return nil, err
	}
	t := &tools{variant: v, family: f, programs: p}
	if v == legacy {
		t.lock = newLock()
	}
	return t, nil
}

// restore runs one input. Every table of it is changed as a whole or not at all. The error wraps
// proxiers.ErrRefused when the content is to blame.
func (t *tools) restore(ctx context.Context, input []byte) error {
	args := []string{"--noflush"}
	if t.lock != nil {
		if err := t.lock.pass(ctx); err != nil {
			return err
		}
		args = append(args, t.lock.wait(ctx))
	}
	cmd := t.command(ctx, t.programs.restore, args...)
	cmd.Stdin = bytes.NewReader(input)
	if _, err := cmd.Output(); err != nil {
		return restoreError(ctx, cmd, err, input)
	}
	return nil
}

// lockWait says how often restore has taken the lock of the iptables programs, and how long it
// waited for it. Both are 0 for iptables-nft.
func (t *tools) lockWait() (locks uint64, waited time.Duration) {
	if t.lock == nil {
		return 0, 0
	}
	return t.lock.stats()
}

// command prepares a program. It is killed when ctx ends. What it has written is then waited for as long as a
// very busy machine may need, but not for ever: a child of its own (modprobe) may keep the pipes open.
func (t *tools) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// hasTable asks the kernel. iptables-legacy's programs would load and register the table. Where nobody
// may ask, it has it.
func (t *tools) hasTable(table string) (bool, error) {
	names, err := tableNames(t.variant, t.family)
	if errors.Is(err, fs.ErrPermission) {
		return true, nil
	}
	return slices.Contains(names, table), err
}

// xtables are all tables that iptables has. Others of nftables' are none of ours.
var xtables = []string{"raw", "mangle", tableNAT, tableFilter, "security"}

// tableNames gives those of xtables that exist. The error is fs.ErrPermission where only the privileged
// may know.
func tableNames(v variant, f plan.Family) ([]string, error) {
	if v == legacy {
		return legacyTables(f)
	}
	return nftTables(f)
}

// legacyTables reads the list of the calling thread's network namespace. There is none before the kernel
// has loaded ip_tables. Only root may read it, and only who has CAP_NET_RAW what is in the tables.
func legacyTables(f plan.Family) ([]string, error) {
	name := map[plan.Family]string{plan.IPv4: "ip_tables_names", plan.IPv6: "ip6_tables_names"}[f]
	text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(text) == 0 {
		return nil, err
	}
	// The programs ask the kernel through such a socket.
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, os.NewSyscallError("raw socket", err)
	}
	_ = unix.Close(raw)
	return strings.Fields(string(text)), nil
}

// nftTables also gives none where the kernel lacks nf_tables.
func nftTables(f plan.Family) ([]string, error) {
	c, err := nfnetlink.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var names []string
	err = c.Dump(unix.NFT_MSG_GETTABLE, nfnetlink.Family(f), nil, func(m nfnetlink.Message) error {
		name := string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, unix.NFTA_TABLE_NAME)))
		if m.Family == nfnetlink.Family(f) && slices.Contains(xtables, name) {
			names = append(names, name)
		}
		return nil
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list of nftables' tables: %w", err)
	}
	return names, nil
}
