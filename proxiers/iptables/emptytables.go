package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// builtinChains are the base chains that iptables-nft makes in tables of ours, as it needs them.
var builtinChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// deleteEmptyTables deletes the tables that iptables-nft made for our rules and never deletes: those with
// nothing in them but built-in chains as they were made.
func deleteEmptyTables(f plan.Family) error {
	for _, table := range tables {
		// Another program's change in between has the kernel refuse ours.
		const attempts = 10
		var err error
		for range attempts {
			if err = deleteIfEmpty(f, table); !errors.Is(err, unix.ERESTART) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("delete empty table %s: %w", table, err)
		}
	}
	return nil
}

func deleteIfEmpty(f plan.Family, table string) error {
	c, err := nfnetlink.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	generation, err := c.Generation()
	if err != nil {
		return err
	}
	empty, err := isEmpty(c, f, table)
	if err != nil || !empty {
		return err
	}
	return deleteTable(f, table, generation)
}

// isEmpty says whether a table exists and has only built-in chains without rules that accept.
func isEmpty(c *nfnetlink.Conn, f plan.Family, table string) (bool, error) {
	var objects uint32 // chains, sets, maps, counters and so on
	exists := false
	err := c.Dump(unix.NFT_MSG_GETTABLE, nfnetlink.Family(f), nil, func(m nfnetlink.Message) error {
		if m.Family == nfnetlink.Family(f) && string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, unix.NFTA_TABLE_NAME))) == table {
			exists, objects = true, nfnetlink.Uint32(nfnetlink.Attr(m.Attrs, unix.NFTA_TABLE_USE))
		}
		return nil
	})
	if err != nil || !exists {
		return false, err
	}
	chains, err := nftChains(c, f, table)
	if err != nil {
		return false, err
	}
	used := slices.ContainsFunc(chains, func(ch nftChain) bool {
		return !ch.base || !ch.accepts || ch.use > 0 || !slices.Contains(builtinChains, ch.name)
	})
	return !used && int(objects) == len(chains), nil
}

// deleteTable fails with unix.ERESTART when anything changed since the generation.
func deleteTable(f plan.Family, table string, generation uint32) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return os.NewSyscallError("netlink socket", err)
	}
	defer unix.Close(fd)
	begin := binary.NativeEndian.AppendUint16(nil, 8)
	begin = binary.NativeEndian.AppendUint16(begin, unix.NFNL_BATCH_GENID)
	begin = binary.BigEndian.AppendUint32(begin, generation)
	var b []byte
	b = appendMessage(b, unix.NFNL_MSG_BATCH_BEGIN, unix.AF_UNSPEC, 0, begin)
	b = appendMessage(b, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, nfnetlink.Family(f), unix.NLM_F_ACK,
		nfnetlink.AppendAttr(nil, unix.NFTA_TABLE_NAME, table))
	b = appendMessage(b, unix.NFNL_MSG_BATCH_END, unix.AF_UNSPEC, 0, nil)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("netlink send", err)
	}
	// The kernel has answered before the send returns: with the acknowledgement or the error.
	answer := make([]byte, 1<<12)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return os.NewSyscallError("netlink receive", err)
	}
	_, err = nfnetlink.EachMessage(answer[:n], func(nfnetlink.Message) {})
	return err
}

// appendMessage adds a netlink message of netfilter. The last 16 bits of its header are the subsystem that a
// transaction is for, big-endian; other messages have 0 there.
func appendMessage(b []byte, kind uint16, family uint8, flags uint16, attrs []byte) []byte {
	const header = unix.NLMSG_HDRLEN + 4
	b = binary.NativeEndian.AppendUint32(b, uint32(header+len(attrs)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence and port
	b = append(b, family, unix.NFNETLINK_V0)
	subsystem := uint16(0)
	if kind == unix.NFNL_MSG_BATCH_BEGIN || kind == unix.NFNL_MSG_BATCH_END {
		subsystem = unix.NFNL_SUBSYS_NFTABLES
	}
	b = binary.BigEndian.AppendUint16(b, subsystem)
	return append(b, attrs...)
}
