package nfnetlink

import "errors"

// staleAttempts is how often a batch is committed that comes too late each time: others then write all the time.
const staleAttempts = 10

// ErrTouched says that another program has changed something of ours, which has just been reported. A batch that was to
// follow has not been sent.
var ErrTouched = errors.New("another program changed what is ours")

// Commit has the kernel do a batch, on what the notices tell: if another program has changed something of ours that was
// not reported before, it reports drift and sends nothing (ErrTouched). Transactions of others that do not concern us do
// not count; ErrStale says that there were too many.
func (m *Monitor) Commit(b *Batch) error {
	reason, err := m.commit(b)
	if reason != "" {
		m.opts.Notify(reason)
	}
	return err
}

func (m *Monitor) commit(b *Batch) (reason string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range staleAttempts {
		if reason, _ = m.foreign(0); reason != "" {
			return reason, ErrTouched
		}
		// Without the notices of some transaction the generation is asked for. If it was one that touched what is ours, they
		// are read after the commit, at the latest.
		if m.generation == 0 || m.outside {
			if m.generation, err = m.Conn.Generation(); err != nil {
				return "", err
			}
		}
		if err = m.Conn.Commit(b, m.generation); !errors.Is(err, ErrStale) {
			break
		}
		m.generation = 0 // the notices of the transaction that came before are there
	}
	if err == nil {
		reason, _ = m.foreign(0)
	}
	return reason, err
}
