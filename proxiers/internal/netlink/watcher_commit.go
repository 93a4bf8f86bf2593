package netlink

import "errors"

// staleAttempts is the maximum number of attempts to commit a batch while other programs constantly send transactions.
// An attempt takes about 0.1 ms.
const staleAttempts = 1000

// ErrDrift means that Commit did not send a batch because another program had changed Edgeway's objects.
var ErrDrift = errors.New("another program changed Edgeway's rules")

// Commit reads all pending notifications and then commits a batch. If another program has changed Edgeway's objects
// since the last Forget, Commit reports the change. Unless anyway is true, Commit then returns ErrDrift without sending
// the batch. Commit ignores transactions that change only other programs' objects. Commit returns ErrStale after
// staleAttempts failed attempts.
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
		if news, _ := m.detectDrift(0); news != "" {
			reason = news
		}
		if m.reported && !anyway {
			return reason, ErrDrift
		}
		// Without the notifications about the last transaction, the watcher must request the generation from the
		// kernel. If the last transaction changed Edgeway's objects, the watcher reads that transaction's notifications
		// immediately after the commit at the latest.
		if m.generation == 0 || m.joinFailed {
			if m.generation, err = m.Conn.Generation(); err != nil {
				return reason, err
			}
		}
		if err = m.Conn.Commit(b, m.generation); !errors.Is(err, ErrStale) {
			break
		}
		m.StaleBatches.Add(1)
		m.generation = 0 // the notifications about the other transaction are already available
	}
	if err == nil {
		if news, _ := m.detectDrift(0); news != "" {
			reason = news
		}
	}
	return reason, err
}
