package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// labelValueCount is the number of values of the label that divides the Services into tenths.
const labelValueCount = 10

func measureAll(ctx context.Context, opts options, r results) error {
	l, err := newLab(ctx, opts)
	if err != nil {
		return err
	}
	defer l.close()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	for _, p := range programs() {
		log.Info("measuring", "watches", p)
		if err := l.measure(ctx, p, r); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) measure(ctx context.Context, program string, r results) error {
	m := &measurement{lab: l, program: program, results: r}
	if program != noHosts {
		if err := l.setPriorityLevel(ctx, program == ownLevel); err != nil {
			return err
		}
		r.add(hostsMeasure, program, float64(l.opts.hosts))
		if err := m.begin(ctx); err != nil {
			return err
		}
		defer func() { _ = m.fleet.stop() }() // the measurement is already over
	}
	if err := m.recordDuring(ctx, atRest, func() error { return kit.Sleep(ctx, l.opts.rest) }); err != nil {
		return err
	}
	if err := m.recordDuring(ctx, changing, func() error { return l.changeEndpoints(ctx) }); err != nil {
		return err
	}
	return m.measureRestart(ctx)
}

type measurement struct {
	*lab
	program string
	fleet   *fleet // nil if no hosts are running
	results results
}

func (m *measurement) hosts() float64 {
	if m.fleet == nil {
		return 0
	}
	return float64(m.opts.hosts)
}

// add records the total for all hosts, divided by the number of hosts.
func (m *measurement) add(what measure, ofAll float64) {
	if n := m.hosts(); n > 0 {
		m.results.add(what, m.program, ofAll/n)
	}
}

// begin starts the hosts and waits until each host has received all Services and is watching for changes.
func (m *measurement) begin(ctx context.Context) error {
	selector := ""
	if m.program == tenth {
		selector = cluster.LabelTenth + "=0"
	}
	before, err := m.usage()
	if err != nil {
		return err
	}
	if m.fleet, err = m.start(selector); err != nil {
		return err
	}
	if err := m.fleet.await(ctx, "all hosts are in sync",
		func(s state) bool { return s.Synced == m.opts.hosts }); err != nil {
		return err
	}
	after, err := m.usage()
	if err != nil {
		return err
	}
	m.add(startBytes, after.bytes-before.bytes)
	// Each host receives the initial list through a watch, and replaces this watch ten seconds after the end of the
	// list.
	return kit.Sleep(ctx, 15*time.Second)
}

// recordDuring calls do, and records the resource usage and the hosts' requests during the call.
func (m *measurement) recordDuring(ctx context.Context, when phase, do func() error) error {
	before, err := m.usage()
	if err != nil {
		return err
	}
	others, err := m.measureOthers(ctx)
	if err != nil {
		return err
	}
	err = do()
	m.addOthers(when, others)
	if err != nil {
		return err
	}
	after, err := m.usage()
	if err != nil {
		return err
	}
	requests, err := readAudit(m.audit())
	if err != nil {
		return err
	}
	took := after.at.Sub(before.at)
	m.add(when.of(requestRate), float64(count(requests, before.at, took).all)/took.Seconds())
	m.add(when.of(byteRate), (after.bytes-before.bytes)/took.Seconds())
	m.add(when.of(hostCPU), (after.hosts-before.hosts)/took.Seconds())
	m.results.add(when.of(serverCPU), m.program, (after.server-before.server)/took.Seconds())
	m.results.add(when.of(serverMemory), m.program, after.memory)
	return nil
}

func (m *measurement) addOthers(when phase, o *otherClients) {
	for what, p99 := range o.end() {
		m.results.add(when.of(what), m.program, p99)
	}
}

// changeEndpoints replaces endpoints of random Services at a constant rate.
func (l *lab) changeEndpoints(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*l.opts.busy)
	defer cancel()
	pace := time.NewTicker(time.Second / time.Duration(l.opts.rate))
	defer pace.Stop()
	for range int(l.opts.busy.Seconds() * float64(l.opts.rate)) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
		}
		l.written++
		i := rand.IntN(l.opts.services)
		slice := cluster.Slice(i, l.opts.endpoints)
		slice.Endpoints[l.written%l.opts.endpoints].Addresses[0] = cluster.EndpointAddr(i, 8+l.written%8).String()
		if err := l.cluster.UpdateSlice(ctx, slice); err != nil {
			return err
		}
	}
	return nil
}

// measureRestart restarts the API server, and measures the time until all hosts have reconnected. measureRestart also
// measures the resource usage during the restart and for opts.countTime afterwards.
func (m *measurement) measureRestart(ctx context.Context) error {
	before, err := m.usage()
	if err != nil {
		return err
	}
	stopped := time.Now()
	m.cluster.StopAPIServer()
	if err := kit.Sleep(ctx, m.opts.downtime); err != nil {
		return err
	}
	if err := m.cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	ready := time.Now()
	others, err := m.measureOthers(ctx)
	if err != nil {
		return err
	}
	if m.fleet != nil {
		err = m.fleet.await(ctx, "all hosts have reached the API server", func(s state) bool {
			return s.Faulty == 0 && s.Synced == m.opts.hosts && s.Contact.After(stopped)
		})
		m.results.add(recoveryTime, m.program, time.Since(ready).Seconds())
	} else {
		err = kit.Sleep(ctx, m.opts.countTime/3)
	}
	m.addOthers(back, others)
	if err != nil {
		return err
	}
	if err := kit.Sleep(ctx, time.Until(ready.Add(m.opts.countTime))); err != nil {
		return err
	}
	after, err := m.usage()
	if err != nil {
		return err
	}
	m.results.add(back.of(serverCPU), m.program, after.server) // the restarted API server's CPU time starts at 0
	m.results.add(back.of(serverMemory), m.program, after.memory)
	m.add(back.of(bytesEach), after.bytes-before.bytes)
	m.add(back.of(hostCPU), after.hosts-before.hosts)
	return m.recordRequests(stopped)
}

// recordRequests finds the first request after stopped, the time when the benchmark stopped the API server, and records
// all requests that arrive within opts.countTime of that first request.
func (m *measurement) recordRequests(stopped time.Time) error {
	all, err := readAudit(m.audit())
	if err != nil || m.fleet == nil {
		return err
	}
	first := slices.IndexFunc(all, func(r request) bool { return r.at.After(stopped) })
	if first < 0 {
		return nil
	}
	c := count(all, all[first].at, m.opts.countTime)
	m.add(back.of(requestsEach), float64(c.all))
	m.add(back.of(listsEach), float64(c.lists))
	m.results.add(back.of(refused), m.program, float64(c.refused))
	m.results.add(back.of(mostRequests), m.program, float64(c.most))
	m.results.add(back.of(mostLists), m.program, float64(c.mostLists))
	return nil
}
