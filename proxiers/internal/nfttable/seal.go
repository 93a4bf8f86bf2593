package nfttable

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// A seal spares a restart to read what it has left behind. It is an empty chain that the first table gets when it is closed.
// Its name is a digest of all that the tables hold then, of the number of the transaction that adds the chain, and of the
// boot. Tables whose seal is that of what is wanted and of the last transaction that there was are as they were left, and as
// they are wanted.
//
// Others may write at any time. Each transaction has a number, whatever it is about. The one with the seal follows the last
// that notices told of, or the kernel refuses it, and there is none if another program has touched what is ours. The next
// start deletes the seal, in the very next transaction or not at all, and from then on there are notices again. Numbers are
// those of a network namespace, as the chain is; after 2^32 they come again. After a boot they begin anew, and another program
// may load the tables, with their seal, from a list that somebody has edited: so the boot is in the digest. What packets
// write, clients and counters, is nothing that a full sync compares.
const sealPrefix = "unchanged-"

// bootID is another one after each boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// leaveSeal adds one, if the tables are known to be as the plan of the references wants them.
func (t *Table) leaveSeal() {
	if t.wire == nil || t.refs == nil {
		return
	}
	digest, err := t.digest(t.refs, t.plan)
	if err == nil {
		err = t.watcher.Last(func(generation uint32) *netlink.Batch {
			return t.sealBatch(unix.NFT_MSG_NEWCHAIN, t.sealOf(digest, generation))
		})
	}
	if err != nil {
		t.env.Logger.Debug("the next start will read the tables", "table", t.Table, "error", err)
	}
}

// unchanged says that the tables are as they were left, and as the plan of the references wants them. It deletes the seal.
func (t *Table) unchanged(refs *references, p *plan.Plan) bool {
	sealed := false
	for id := range refs.idle {
		sealed = sealed || strings.HasPrefix(id.Name, sealPrefix)
	}
	if t.wire == nil || !sealed {
		return false
	}
	digest, err := t.digest(refs, p)
	generation, failed := t.kernel.Generation()
	if err != nil || failed != nil {
		return false
	}
	seal := t.sealOf(digest, generation)
	if _, found := refs.idle[seal]; !found || t.kernel.Commit(t.sealBatch(unix.NFT_MSG_DELCHAIN, seal), generation) != nil {
		return false
	}
	t.byNetlink.Add(1)
	refs.forget(seal)
	return true
}

func (t *Table) sealOf(digest []byte, generation uint32) ObjectID {
	sum := sha256.Sum256(netlink.AppendUint32(digest, 0, generation))
	return ObjectID{t.families[0], ChainObject, sealPrefix + hex.EncodeToString(sum[:16])}
}

func (t *Table) sealBatch(kind uint16, seal ObjectID) *netlink.Batch {
	b := &netlink.Batch{}
	b.Add(kind, unix.NLM_F_CREATE, netlink.Family(seal.Family), func(attrs []byte) []byte {
		return netlink.AppendAttr(netlink.AppendAttr(attrs, netlink.AttrTable, t.Table), unix.NFTA_CHAIN_NAME, seal.Name)
	})
	return b
}

// digest is one of the boot, and of all that the tables hold.
func (t *Table) digest(refs *references, p *plan.Plan) ([]byte, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, fmt.Errorf("identity of the boot: %w", err)
	}
	h := sha256.New()
	_, _ = h.Write(boot)
	tx, seen := newTransaction(), map[ObjectID]bool{}
	t.base(tx, p.Node, baseOptions{})
	d := digester{h, t.Sets, nil}
	t.needs(refs, p, func(n *Needs) {
		for i := range n.entries {
			d.add(&n.entries[i])
		}
		for _, e := range n.shared {
			d.add(&Entry{Element: e})
		}
		for _, o := range n.objects {
			if seen[o.ObjectID] {
				continue
			}
			seen[o.ObjectID] = true
			t.addObject(tx, o)
			if o.numbered {
				e := refs.numberEntry(t.Numbers, o.ObjectID)
				d.add(&e)
			}
		}
	})
	for _, e := range t.Node(p.Node) {
		d.add(&e)
	}
	_, _ = h.Write([]byte(tx.String()))
	return h.Sum(nil), nil
}

// digester adds entries to a digest.
type digester struct {
	hash.Hash
	sets []Set
	buf  []byte
}

func (d *digester) add(e *Entry) {
	d.buf = d.sets[e.Set].appendElement(append(d.buf[:0], byte(e.Family), byte(e.Set)), e, true)
	_, _ = d.Write(d.buf)
}
