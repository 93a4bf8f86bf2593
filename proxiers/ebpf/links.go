package ebpf

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"edgeway/proxiers"
)

const linkPrefix = "link-"

type hook struct {
	program string
	at      ebpf.AttachType
}

// hooks returns the hooks in attachment order. The hooks that reverse a translation come first.
func hooks() []hook {
	return []hook{
		{socketsProgRelease, ebpf.AttachCgroupInetSockRelease},
		{socketsProgGetpeername4, ebpf.AttachCgroupInet4GetPeername},
		{socketsProgGetpeername6, ebpf.AttachCgroupInet6GetPeername},
		{socketsProgRecvmsg4, ebpf.AttachCGroupUDP4Recvmsg},
		{socketsProgRecvmsg6, ebpf.AttachCGroupUDP6Recvmsg},
		{socketsProgConnect4, ebpf.AttachCGroupInet4Connect},
		{socketsProgConnect6, ebpf.AttachCGroupInet6Connect},
		{socketsProgSendmsg4, ebpf.AttachCGroupUDP4Sendmsg},
		{socketsProgSendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
	}
}

// socketLinks attaches the programs to the root cgroup, and holds the BPF links.
type socketLinks struct {
	dir  string
	root string

	mu    sync.Mutex
	links map[string]attachedLink
}

type attachedLink struct {
	link.Link
	program ebpf.ProgramID
}

// attach attaches every program. If a hook already has a pinned link, attach replaces the link's program without
// interrupting connections.
func (l *socketLinks) attach(o *objects) error {
	group, err := cgroupID(l.root)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeAll()
	programs := o.programs()
	for _, h := range hooks() {
		p := *programs[h.program]
		k, err := l.attachOne(h, p, group)
		if err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, l.root, explain(err))
		}
		id, err := programID(p)
		if err != nil {
			k.Close()
			return err
		}
		l.links[h.program] = attachedLink{k, id}
	}
	return nil
}

func (l *socketLinks) path(name string) string { return filepath.Join(l.dir, layout, linkPrefix+name) }

func (l *socketLinks) attachOne(h hook, p *ebpf.Program, group uint64) (link.Link, error) {
	path := l.path(h.program)
	if k, err := link.LoadPinnedLink(path, nil); err == nil {
		if cgroupOf(k) == group && k.Update(p) == nil {
			return k, nil
		}
		_ = k.Close()
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	dir, err := os.Open(l.root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	k, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: p, Attach: h.at})
	if err != nil {
		return nil, err
	}
	defer k.Close()
	if err := k.Pin(path); err != nil {
		return nil, err
	}
	return link.LoadPinnedLink(path, nil) // a link of this type reports its cgroup
}

// cgroupOf returns a link's cgroup ID, or 0 if the link is detached.
func cgroupOf(k link.Link) uint64 {
	info, err := k.Info()
	if err != nil || info.Cgroup() == nil {
		return 0
	}
	return info.Cgroup().CgroupId
}

// describeDamage describes a link that another program has changed since the last call to attach, or returns "" if all
// links are intact.
func (l *socketLinks) describeDamage() string {
	group, err := cgroupID(l.root)
	if err != nil {
		return err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, k := range l.links {
		info, err := k.Info()
		switch {
		case err != nil:
			return fmt.Sprintf("cannot query the BPF link of %s: %v", name, err)
		case cgroupOf(k) != group:
			return "the program " + name + " was detached"
		case info.Program != k.program:
			return "the program " + name + " was replaced"
		}
		if _, err := os.Lstat(l.path(name)); err != nil {
			return "the BPF link of " + name + " was unpinned"
		}
	}
	return ""
}

// closeAll closes the descriptors. Pinned links stay attached.
func (l *socketLinks) closeAll() {
	for _, k := range l.links {
		_ = k.Close()
	}
	l.links = map[string]attachedLink{}
}

func (l *socketLinks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeAll()
}

// cgroupID returns a cgroup's ID, which is the inode number of its directory.
func cgroupID(root string) (uint64, error) {
	info, err := os.Stat(root)
	if err != nil {
		return 0, fmt.Errorf("cgroup root: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("cgroup root: no inode number for %s", root)
	}
	return st.Ino, nil
}

func programID(p *ebpf.Program) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("loaded program: %w", err)
	}
	id, _ := info.ID()
	return id, nil
}

// findRoot returns the mount point of cgroup v2, which is not /sys/fs/cgroup on a host that also mounts cgroup v1.
func findRoot(mountinfo string) (string, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// proc_pid_mountinfo(5) describes the format: ID parent major:minor root mountpoint options [fields…] - type source
	// options
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		words := strings.Fields(before)
		if len(words) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			return words[4], nil
		}
	}
	return "", fmt.Errorf("%w: cgroup v2 is not mounted, although systemd usually mounts it; "+
		"fix: mount -t cgroup2 none /sys/fs/cgroup", proxiers.ErrUnsupported)
}
