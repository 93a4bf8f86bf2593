package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

const (
	// deleteDelay is the time between a set's last use by a frontend and the set's deletion. A program that has just
	// read a frontend may still read the frontend's previous set. Without the delay, 8 of 40,000 connections failed at
	// 1,000 changes per second (Linux 6.18).
	deleteDelay = time.Second
	// minRetryDelay and maxRetryDelay are the minimum and maximum delays between a failure and the next attempt.
	minRetryDelay, maxRetryDelay = time.Second, time.Minute
)

// shortcuts manages the BPF programs and their maps. If the programs fail, nftables forwards all connections until a
// retry succeeds.
type shortcuts struct {
	logger   *slog.Logger
	families []plan.Family
	size     size
	tc       bool
	// Tests override tcRate and trackingFull, which default to the constant tcRate and the function halfFull.
	tcRate       uint32
	trackingFull func() (bool, error)
	config       socketsSettings
	dir          string

	mapState *mapState
	// plan is the plan that the nft tables implement.
	plan *plan.Plan
	// known reports whether the maps implement the same plan as the nft tables.
	known   bool
	stale   []staleSlots
	retry   retry
	orphans orphanDestroyer

	// mu protects the fields below, which proxier.watch uses in another goroutine.
	mu       sync.Mutex
	objects  *objects
	tables   planMaps
	links    *socketLinks
	attacher *deviceAttacher
	// up reports whether the socket programs are attached and have passed the last self-test.
	up      bool
	problem error
	// tcErr is the error that keeps the tc program inactive although tc is set, or nil if there is none.
	tcErr error
}

type staleSlots struct {
	at   time.Time
	keys []socketsSlotKey
}

func newShortcuts(dir string, env proxiers.Env, changed func()) (*shortcuts, error) {
	cookie, err := netnsCookie()
	if err != nil {
		return nil, err
	}
	p, err := newDeviceAttacher(env, changed)
	if err != nil {
		return nil, err
	}
	return &shortcuts{
		attacher: p, orphans: orphanDestroyer{destroy: destroySocket},
		logger: env.Logger, families: env.Families, size: sizeOf(env.Settings), tc: tcOf(env.Settings), tcRate: tcRate,
		trackingFull: halfFull, dir: dir,
		config: socketsSettings{Netns: cookie, OwnMark: proxiers.OwnMark(env.MasqueradeBit)},
	}, nil
}

// netnsCookie returns the cookie of the calling thread's network namespace. netnsCookie needs Linux 5.14.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("%w: network namespace cookie (needs Linux 5.14 or newer): %w",
			proxiers.ErrUnsupported, err)
	}
	return cookie, nil
}

// begin applies the map changes that must precede the nft table changes. On failure, begin disables the programs and
// returns nil.
func (s *shortcuts) begin(change proxiers.Change) *step {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known && change.Prev != nil
	s.known = false
	st, err := s.prepare(change, known)
	if err == nil {
		err = s.pauseTC(change.Next.Node)
	}
	if err == nil {
		err = st.write(&s.tables)
	}
	if err != nil {
		s.disable(err)
		return nil
	}
	return st
}

func (s *shortcuts) prepare(change proxiers.Change, known bool) (*step, error) {
	if known {
		return s.mapState.partialStep(change), nil
	}
	s.up, s.attacher.node = false, nil
	if err := s.open(); err != nil {
		return nil, err
	}
	have, err := s.tables.read()
	if err != nil {
		return nil, err
	}
	s.mapState, s.stale = newMapState(s.size), nil
	return s.mapState.fullStep(have, change.Next), nil
}

// open opens the pinned maps and programs, and loads missing objects if the daemon has the necessary privileges.
func (s *shortcuts) open() error {
	if s.links == nil {
		root, err := findRoot("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		s.links = &socketLinks{dir: s.dir, root: root, links: map[string]attachedLink{}}
	}
	o, err := openPinned(s.dir, s.size, s.tc)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.tc && o.tcProgram == nil && s.tcErr == nil {
		o, err = s.load(o)
	}
	if err != nil {
		return explain(err)
	}
	if s.objects != nil {
		s.objects.close()
	}
	s.objects, s.tables = o, planMapsOf(o)
	return s.attacher.use(o)
}

// load closes o, which may be nil, and then loads and opens the maps and programs.
func (s *shortcuts) load(o *objects) (*objects, error) {
	if o != nil {
		o.close()
	}
	without, err := load(s.dir, s.size, s.tc)
	if err != nil {
		return nil, err
	}
	s.setTCErr(without)
	return openPinned(s.dir, s.size, s.tc)
}

// finish switches frontends to the sets that begin wrote. The nft tables must already implement the plan.
func (s *shortcuts) finish(st *step, next *plan.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = next
	if st == nil {
		return
	}
	err := st.switchSets(&s.tables)
	if err == nil && !s.up {
		err = s.raise()
	}
	if err != nil {
		s.disable(err)
		return
	}
	s.startTC(next.Node)
	s.known, s.up, s.problem = true, true, nil
	s.retry = retry{}
	if len(st.staleSlots) > 0 {
		s.stale = append(s.stale, staleSlots{time.Now().Add(deleteDelay), st.staleSlots})
	}
	s.logOverflow(st)
	if st.losesMembers() {
		s.destroyOrphans()
	}
}

func (s *shortcuts) raise() error {
	if err := s.configure(s.config); err != nil {
		return err
	}
	if err := s.links.attach(s.objects); err != nil {
		return err
	}
	for _, f := range s.families {
		if err := selfTest(f); err != nil {
			return err
		}
	}
	if err := removeOldVersions(s.dir); err != nil {
		s.logger.Warn("cannot remove an earlier version's pinned BPF objects", "error", err)
	}
	if !s.tc {
		if err := errors.Join(removeAllFilters(), unpinTC(s.dir)); err != nil {
			s.logger.Warn("cannot remove an earlier daemon's tc program", "error", err)
		}
	}
	s.destroyOrphans()
	return nil
}

// pauseTC stops the tc program if startTC must update the maps for n, because the pod ranges must not change while the
// program is running. The socket programs keep running.
func (s *shortcuts) pauseTC(n *plan.Node) error {
	if !s.tc || s.attacher.isCurrent(n) {
		return nil
	}
	s.config.Packets = 0
	var now socketsSettings
	if err := s.objects.Config.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("settings of the BPF programs: %w", err)
	}
	if now.Packets == 0 {
		return nil
	}
	now.Packets = 0
	return s.configure(now)
}

// startTC attaches the tc program if it is loaded. The socket programs work without the tc program.
func (s *shortcuts) startTC(n *plan.Node) {
	if !s.tc || s.attacher.program == nil || s.config.Packets != 0 {
		return
	}
	source, err := s.attacher.start(n)
	if err == nil {
		s.config.Flags, err = tcFlags(s.trackingFull)
	}
	if err == nil {
		s.config.Packets, s.config.Source = s.tcRate, source
		err = s.configure(s.config)
	}
	if err != nil {
		s.config.Packets = 0
	}
	s.setTCErr(err)
}

func (s *shortcuts) setTCErr(err error) {
	if err != nil && (s.tcErr == nil || s.tcErr.Error() != err.Error()) {
		s.logger.Warn("tc program unusable, using nftables instead", "error", err)
	}
	s.tcErr = err
}

// attachToNewDevices attaches the tc program to new devices if the program is active.
func (s *shortcuts) attachToNewDevices() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.Packets != 0 {
		s.attachToNewDevicesLocked()
	}
}

// attachToNewDevicesLocked attaches the tc program to new devices. The caller must hold mu.
func (s *shortcuts) attachToNewDevicesLocked() {
	if err := s.attacher.updateDevices(); err != nil {
		s.logger.Warn("cannot attach the tc program to new devices", "error", err)
	}
}

func (s *shortcuts) configure(c socketsSettings) error {
	if err := s.objects.Config.Put(uint32(0), &c); err != nil {
		return fmt.Errorf("settings of the BPF programs: %w", err)
	}
	return nil
}

// disable disables the programs, because the maps may be inconsistent. nftables then forwards all connections.
func (s *shortcuts) disable(err error) {
	if s.problem == nil || s.problem.Error() != err.Error() {
		s.logger.Warn("BPF programs unusable, using nftables instead", "error", err)
	}
	s.problem, s.known, s.up, s.config.Packets = err, false, false, 0
	if s.objects != nil {
		if err := s.configure(socketsSettings{}); err != nil {
			s.logger.Error("cannot turn the BPF programs off", "error", err)
		}
	}
	s.retry.schedule()
}

// markUnknown records that the contents of the nft tables are unknown, so the next step must be a full step.
func (s *shortcuts) markUnknown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = false
}

// dueTime returns the time when maintain must be called next, or the zero time if maintain has no work to do. While the
// maps' contents are unknown, maintain leaves stale sets and orphans to the next full step.
func (s *shortcuts) dueTime() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan != nil && !s.retry.at.IsZero() {
		return s.retry.at
	}
	if !s.known {
		return at
	}
	at = s.orphans.at
	if len(s.stale) > 0 && (at.IsZero() || s.stale[0].at.Before(at)) {
		at = s.stale[0].at
	}
	return at
}

// maintain deletes stale sets, destroys orphaned sockets, and retries failed steps.
func (s *shortcuts) maintain(context.Context) error {
	now := time.Now()
	if s.plan != nil && !s.retry.at.IsZero() && !now.Before(s.retry.at) {
		s.finish(s.begin(proxiers.NewChange(nil, s.plan)), s.plan)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.stale) > 0 && !now.Before(s.stale[0].at) && s.known {
		if err := s.tables.slots.remove(s.stale[0].keys); err != nil {
			s.disable(err)
			return nil
		}
		s.mapState.slots -= len(s.stale[0].keys)
		s.stale = slices.Delete(s.stale, 0, 1)
	}
	if at := s.orphans.at; s.known && !at.IsZero() && !now.Before(at) {
		s.destroyOrphans()
	}
	return nil
}

// damage describes a change that other software has made to the BPF links or maps since the last call to finish, or
// returns "" if there is none.
func (s *shortcuts) damage() (what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return ""
	}
	defer func() { s.up, s.known = what == "", s.known && what == "" }()
	if what := s.links.describeDamage(); what != "" {
		return what
	}
	for _, f := range s.families {
		if err := selfTest(f); err != nil {
			return err.Error()
		}
	}
	if err := s.tables.requireSelfTest(s.families); err != nil {
		return err.Error()
	}
	switch {
	case s.config.Packets == 0 && s.known: // the tc program failed, or is not loaded
		s.startTC(s.plan.Node)
	case s.config.Packets != 0:
		if s.attacher.damaged() {
			s.attachToNewDevicesLocked()
		}
		s.updateTCFlags()
	}
	return ""
}

// close closes the descriptors. Pinned programs and links stay active.
func (s *shortcuts) close() {
	s.attacher.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up, s.known = false, false
	if s.links != nil {
		s.links.close()
	}
	if s.objects != nil {
		s.objects.close()
		s.objects = nil
	}
}
