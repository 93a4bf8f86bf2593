package ipvs

import (
	"sync"
	"time"
)

// clientSet is a set of clients that send requests continuously. Each client sends its next request 50 ms after the
// previous request ends.
type clientSet struct {
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	count    int
	failures []string
}

func startLoad(clients ...func() error) *clientSet {
	l := &clientSet{stop: make(chan struct{})}
	for _, client := range clients {
		l.done.Go(func() { l.repeat(client) })
	}
	return l
}

func (l *clientSet) repeat(client func() error) {
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(50 * time.Millisecond): // leave CPU time to the daemon
		}
		err := client()
		l.mu.Lock()
		l.count++
		if err != nil {
			l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+err.Error())
		}
		l.mu.Unlock()
	}
}

// newResults returns the number of requests since the previous call, and the errors of the failed requests.
func (l *clientSet) newResults() (count int, failures []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count, failures = l.count, l.failures
	l.count, l.failures = 0, nil
	return count, failures
}

// resultsAfter waits for the given time and until there are at least the given number of results. It then returns the
// same values as newResults. After 30 s, resultsAfter returns fewer results.
func (l *clientSet) resultsAfter(span time.Duration, least int) (count int, failures []string) {
	for start := time.Now(); time.Since(start) < 30*time.Second; {
		time.Sleep(50 * time.Millisecond)
		n, failed := l.newResults()
		count, failures = count+n, append(failures, failed...)
		if time.Since(start) >= span && count >= least {
			break
		}
	}
	return count, failures
}

func (l *clientSet) end() {
	close(l.stop)
	l.done.Wait()
}
