package netlink

import "errors"

// staleAttempts bounds how often a batch is committed that comes too late each time, because other programs write all
// the time. One attempt takes about 0.1 ms.
const staleAttempts = 1000

// ErrTouched says that another program has changed something of ours, which was reported. A batch that was to follow
// has not been sent.
var ErrTouched = errors.New("another program changed what is ours")

// Commit has the kernel do a batch, on what the notices tell: if another program has changed something of ours since
// the last Forget, it reports that and sends nothing (ErrTouched), unless anyway. Transactions of others that do not
// concern us do not count; ErrStale says that there were too many.
func (m *Watcher) Commit(b *Batch, anyway bool) error {
	reason, err := m.commit(b, anyway)
	if reason != "" {
		m.opts.Notify(reason)
	}
	return err
}

func (m *Watcher) commit(b *Batch, anyway bool) (reason string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range staleAttempts {
		if news, _ := m.foreign(0); news != "" {
			reason = news
		}
		if m.reported && !anyway {
			return reason, ErrTouched
		}
		// Without the notices of some transaction the generation is asked for. If it was one that touched what is ours,
		// they are read after the commit, at the latest.
		if m.generation == 0 || m.outside {
			if m.generation, err = m.Conn.Generation(); err != nil {
				return reason, err
			}
		}
		if err = m.Conn.Commit(b, m.generation); !errors.Is(err, ErrStale) {
			break
		}
		m.Stale.Add(1)
		m.generation = 0 // the notices of the transaction that came before are there
	}
	if err == nil {
		if news, _ := m.foreign(0); news != "" {
			reason = news
		}
	}
	return reason, err
}
