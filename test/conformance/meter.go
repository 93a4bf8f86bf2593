package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// meter counts the objects that programs write to the kernel in this network namespace. For nftables, meter counts the
// rules, chains, sets and elements in nfnetlink notifications. The iptables-legacy programs replace whole tables in the
// kernel, so meter counts the lines of their input instead.
type meter struct {
	fd  int
	buf []byte
	// dir is the directory of the recording scripts, and lines is the path of the file to which these scripts append
	// their input.
	dir, lines string
	path       string // the previous PATH
}

// meterBuffer is the size in bytes of the socket's receive buffer, which must hold all notifications about one Apply
// call.
const meterBuffer = 32 << 20

// recordingScript is a script that appends its input to a file and passes the input on to another program.
const recordingScript = "#!/bin/sh\ntee -a %s | %s \"$@\"\n"

// startMeter starts a meter, and sets PATH so that recording scripts run in place of iptables-legacy-restore and
// ip6tables-legacy-restore.
func startMeter(dir string) (*meter, error) {
	m := &meter{fd: -1, buf: make([]byte, 1<<16), dir: dir, lines: filepath.Join(dir, "lines"), path: os.Getenv("PATH")}
	for _, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		path, err := exec.LookPath(program)
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, program), fmt.Appendf(nil, recordingScript, m.lines, path), 0o700)
		}
		if err != nil {
			return nil, err
		}
	}
	var err error
	if m.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err == nil {
		err = errors.Join(
			unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, meterBuffer),
			unix.Bind(m.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
			unix.SetsockoptInt(m.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES),
			os.Setenv("PATH", dir+":"+m.path),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("nftables notifications: %w", err)
	}
	return m, nil
}

func (m *meter) stop() error { return errors.Join(unix.Close(m.fd), os.Setenv("PATH", m.path)) }

// countWrites returns the number of objects that programs have written since the previous call. The kernel sends all
// notifications about an nftables transaction before the commit of the transaction returns.
func (m *meter) countWrites() (n int, err error) {
	if n, err = m.lineCount(); err != nil {
		return 0, err
	}
	for {
		size, _, err := unix.Recvfrom(m.fd, m.buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return n, nil
		case err == nil && size > len(m.buf):
			err = errors.New("a notification is too long")
		}
		if err != nil {
			return 0, fmt.Errorf("nftables notifications: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(m.buf[:size])
		if err != nil {
			return 0, fmt.Errorf("nftables notifications: %w", err)
		}
		for _, msg := range messages {
			n += countObjects(msg)
		}
	}
}

// countObjects returns the number of objects in a notification, which may contain many elements. The notification that
// ends a transaction does not count as an object.
func countObjects(msg syscall.NetlinkMessage) int {
	const subsystem, genHeader = 8, 4
	switch msg.Header.Type & (1<<subsystem - 1) {
	case unix.NFT_MSG_NEWGEN:
		return 0
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
	default:
		return 1
	}
	n := 0
	attrs, err := netlink.NewAttributeDecoder(msg.Data[min(genHeader, len(msg.Data)):])
	if err != nil {
		return 1
	}
	attrs.ByteOrder = binary.BigEndian
	for attrs.Next() {
		if attrs.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			attrs.Nested(func(elements *netlink.AttributeDecoder) error { n = elements.Len(); return nil })
		}
	}
	return max(1, n)
}

// ruleLine matches a line of iptables-restore input that changes a chain.
var ruleLine = regexp.MustCompile(`(?m)^(:|-[A-Z] )`)

func (m *meter) lineCount() (int, error) {
	text, err := os.ReadFile(m.lines)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return len(ruleLine.FindAllIndex(text, -1)), errors.Join(err, os.Remove(m.lines))
}
