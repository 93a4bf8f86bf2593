package flowtable

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
)

// offered is the counter of packets whose connection was offered to the flowtable.
const offered = "offered"

// askPause is how often the kernel is asked for the counter, while no connection was offered.
const askPause = 500 * time.Millisecond

// waits says that the flowtable has no devices before a connection is offered. The hook of a device costs each packet of it a
// search, of which short connections have nothing: with a threshold there may be no others for long. What is offered meanwhile
// stays with the rules until the table is written with devices. With hardware the drivers are asked at once.
func (o *Options) waits() bool { return o.AfterPackets > 0 && !o.Hardware }

// join has the devices join if a connection was offered, and else sets when to ask again.
func (f *follower) join(ctx context.Context) error {
	began, err := f.wasOffered()
	if err != nil {
		return fmt.Errorf("counter of offered packets: %w", err)
	}
	if !began {
		f.again(ask, askPause)
		return nil
	}
	f.mu.Lock()
	f.waiting = false
	f.mu.Unlock()
	return f.rewrite(ctx, f.have, ofThreshold)
}

// wasOffered asks the kernel for the only object that the table has. Without the table nothing was, and a full sync comes.
func (f *follower) wasOffered() (is bool, err error) {
	table := netlink.AppendAttr(nil, unix.NFTA_OBJ_TABLE, tableName)
	err = f.watcher.Conn.Dump(unix.NFT_MSG_GETOBJ, unix.NFPROTO_INET, table, func(m netlink.Message) error {
		is = netlink.Uint64(netlink.Attr(netlink.Attr(m.Attrs, unix.NFTA_OBJ_DATA), unix.NFTA_COUNTER_PACKETS)) > 0
		return nil
	})
	return is, err
}
