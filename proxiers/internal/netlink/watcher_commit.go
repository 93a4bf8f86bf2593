package netlink

import "errors"

// staleAttempts is the maximum number of attempts to commit a batch while other programs write constantly. An attempt
// takes about 0.1 ms.
const staleAttempts = 1000

// ErrTouched means that another program has changed Edgeway's objects, and that the batch was not sent.
var ErrTouched = errors.New("another program changed Edgeway's rules")

// Commit commits a batch, based on the notices so far. If another program has changed Edgeway's objects since the
// last Forget, Commit reports the change and sends nothing (ErrTouched), unless anyway is set. Commit ignores
// transactions on other objects, but returns ErrStale if there are too many of them.
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
		// If notices of a transaction are missing, ask the kernel for the generation. If that transaction changed
		// Edgeway's objects, the transaction's notices are read after the commit at the latest.
		if m.generation == 0 || m.outside {
			if m.generation, err = m.Conn.Generation(); err != nil {
				return reason, err
			}
		}
		if err = m.Conn.Commit(b, m.generation); !errors.Is(err, ErrStale) {
			break
		}
		m.Stale.Add(1)
		m.generation = 0 // the notices of the earlier transaction are already available
	}
	if err == nil {
		if news, _ := m.foreign(0); news != "" {
			reason = news
		}
	}
	return reason, err
}
