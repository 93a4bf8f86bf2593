package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/source"
	"edgeway/daemon/source/file"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/source/lastknown"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// Each source has the same name as its tracker layer. Manifests take precedence over the API server, because an
// operator placed them on this host.
const (
	fileLayer      = "file"
	kubeLayer      = "kube"
	lastKnownLayer = "lastknown"
	// The last-known state of the manifests is not a layer, because only the file source can distinguish removed
	// manifests from temporarily unreadable ones.
	lastKnownFiles = "lastknown-file"
)

type sources struct {
	tracker   *tracker.Tracker
	file      *file.Source     // file is nil if the configuration names no manifests
	kube      *kube.Source     // kube is nil if the configuration names no API server
	kubeStore *lastknown.Store // kubeStore is nil if the configuration names no API server
	// fileStore is the last-known state of the manifests, or nil if the configuration names no manifests.
	fileStore *lastknown.Store
	// ignoreStores reports whether Edgeway neither serves nor writes the last-known state.
	ignoreStores bool
	// isReload reports whether this process has already programmed the kernel with a plan.
	isReload bool
	// firstCommit is closed by the first commit.
	commitOnce  sync.Once
	firstCommit chan struct{}
}

func (s *sources) status() (out []control.StatusSource) {
	for _, src := range s.list() {
		out = append(out, control.StatusSource{Name: src.Name(), Status: src.Status()})
	}
	return out
}

// newSources creates the configured sources. newSources reads the kubeconfig, but opens no connections and writes
// nothing.
func newSources(cfg *config.Config, logger *slog.Logger, outside Overrides) (*sources, error) {
	s := &sources{firstCommit: make(chan struct{})}
	var layers []tracker.Layer
	if len(cfg.Source.File.Paths) > 0 {
		s.addFiles(cfg, logger, outside)
		layers = append(layers, tracker.Layer{Name: fileLayer})
	}
	if k := cfg.Source.Kube; k.Kubeconfig != "" {
		var err error
		s.kube, err = kube.New(kube.Options{
			Kubeconfig: k.Kubeconfig, AllowExecPlugins: k.AllowExecPlugins,
			Namespaces: k.Namespaces, LabelSelector: k.LabelSelector,
			NodeName: cfg.Node.Name, UserAgent: "edgeway", Logger: logger.With("source", kubeLayer),
			Mark: proxiers.OwnMark(cfg.Proxy.MasqueradeBit), KnownAddrs: s.serverAddrs,
			BeforeLists: s.waitForState,
			Dial:        outside.Dial, Lookup: outside.Lookup, BeforeConvert: outside.Convert,
		})
		if err != nil {
			return nil, markPermanent(err)
		}
		layers = append(layers, tracker.Layer{Name: kubeLayer})
	}
	if s.kube != nil {
		s.kubeStore = lastknown.New(cfg.Source.LastKnown.Directory, lastknown.Options{
			Cluster: func() lastknown.Cluster {
				server, cas := s.kube.Cluster()
				return lastknown.Cluster{Server: server, CAs: cas}
			},
			Changes:     func() (uint64, bool) { return s.tracker.Changes(kubeLayer) },
			Objects:     func() []source.Object { return s.tracker.Objects(kubeLayer) },
			ConfirmedAt: func() time.Time { return s.kube.Status().LastContact },
			Logger:      logger.With("source", lastKnownLayer),
			BeforeLoad:  outside.Convert,
		})
		layers = append(layers, tracker.Layer{Name: lastKnownLayer, FallbackFor: kubeLayer})
	}
	s.tracker = tracker.New(layers...)
	return s, nil
}

func (s *sources) addFiles(cfg *config.Config, logger *slog.Logger, outside Overrides) {
	o := file.Options{
		Paths: cfg.Source.File.Paths, NodeName: cfg.Node.Name, NewWatcher: outside.NewWatcher,
		BeforeConvert: outside.Convert, Logger: logger.With("source", fileLayer),
	}
	s.fileStore = lastknown.New(fileStoreDir(cfg), lastknown.Options{
		Name:       lastKnownFiles,
		Cluster:    func() lastknown.Cluster { return lastknown.Cluster{} },
		Changes:    func() (uint64, bool) { return s.tracker.Changes(fileLayer) },
		Objects:    func() []source.Object { return s.tracker.Objects(fileLayer) },
		Logger:     logger.With("source", lastKnownFiles),
		BeforeLoad: outside.Convert,
	})
	o.KnownObjects = s.savedObjects
	s.file = file.New(o)
}

func fileStoreDir(cfg *config.Config) string {
	return filepath.Join(cfg.Source.LastKnown.Directory, "manifests")
}

// savedObjects returns the manifest objects from the last-known state. ok is false if there is no last-known state.
func (s *sources) savedObjects() (objects []source.Object, ok bool) {
	if s.ignoreStores {
		return nil, false
	}
	objects, _ = s.fileStore.Load()
	_, ok = s.fileStore.SavedAt()
	return objects, ok
}

func (s *sources) stores() (out []*lastknown.Store) {
	for _, store := range []*lastknown.Store{s.kubeStore, s.fileStore} {
		if store != nil {
			out = append(out, store)
		}
	}
	return out
}

func (s *sources) storeFaults() (out []fault.Fault) {
	for _, store := range s.stores() {
		out = append(out, store.Faults()...)
	}
	return out
}

// DuplicateServiceID is the ID of the fault for Services that exist in two sources.
const DuplicateServiceID = "duplicate-service"

func (s *sources) duplicateFaults() []fault.Fault {
	keys := s.tracker.HiddenServices()
	if len(keys) == 0 {
		return nil
	}
	return []fault.Fault{fault.New(DuplicateServiceID, fault.Warning,
		"rename or delete one version of each duplicate Service",
		"both the manifests and the API server contain %s: Edgeway serves the version from the manifests, "+
			"with the EndpointSlices from both sources", text.FirstOf(keys))}
}

// commit tells the stores that the host is in sync with the sources' objects, so the stores can save them.
func (s *sources) commit(held []source.Holding) {
	for _, store := range s.stores() {
		store.Commit(held)
	}
	s.commitOnce.Do(func() { close(s.firstCommit) })
}

// lastKnownState returns the time when a source last confirmed the saved state. serving reports whether Edgeway serves
// the last-known state of a source that has not synced since the start.
func (s *sources) lastKnownState() (saved time.Time, serving bool) {
	for _, store := range s.stores() {
		at, ok := store.SavedAt()
		serves := ok && store.Status().Synced
		if store == s.kubeStore {
			serves = serves && !s.kube.Status().Synced
		} else {
			serves = serves && !s.file.Status().Synced
		}
		if saved.IsZero() || serves && !serving {
			saved, serving = at, serves
		}
	}
	return saved, serving
}

func (s *sources) expiries() map[string]time.Time {
	out := map[string]time.Time{}
	if s.kube != nil {
		for credential, e := range s.kube.Expiries() {
			out[credential] = e.Until
		}
	}
	return out
}

// position returns the "file:line" of an object in a manifest, or "" if the object is not in a manifest.
func (s *sources) position(key source.Key) string {
	if s.file == nil {
		return ""
	}
	return s.file.Position(key)
}

// list returns the sources in layer order.
func (s *sources) list() []source.Source {
	out := s.primarySources()
	if !s.ignoreStores {
		for _, store := range s.stores() {
			out = append(out, store)
		}
	}
	return out
}

// primarySources returns the sources other than the last-known stores.
func (s *sources) primarySources() (out []source.Source) {
	if s.file != nil {
		out = append(out, s.file)
	}
	if s.kube != nil {
		out = append(out, s.kube)
	}
	return out
}

func (s *sources) run(start starter) {
	for _, src := range s.list() {
		start("source "+src.Name(), func(ctx context.Context) error {
			if src.Name() == lastKnownFiles {
				s.fileStore.Record(ctx)
				return nil
			}
			return src.Run(ctx, s.tracker.Sink(src.Name()))
		})
	}
}

// maxStateTime is the maximum time that the kube source waits for the last-known state before it lists objects.
const maxStateTime = 2 * time.Second

// waitForState waits until the host serves the last-known state, unless the state is empty or unusable. The last-known
// state also holds the API server's proven addresses. With 10,000 Services on 2 CPUs, decoding the API server's lists
// during the first sync would delay that sync by 0.5 s.
func (s *sources) waitForState(ctx context.Context) {
	if s.ignoreStores || s.isReload {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxStateTime)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-s.kubeStore.Loaded():
	}
	if s.kubeStore.HasObjects() {
		select {
		case <-ctx.Done():
		case <-s.firstCommit:
		}
	}
}

// serverAddrs returns the API server addresses that TLS handshakes proved in an earlier run.
func (s *sources) serverAddrs() []source.ServerAddr {
	if s.kubeStore == nil {
		return nil
	}
	return s.kubeStore.ServerAddrs()
}

// savedOwners returns the Services that owned contested ports in the previous run. See planner.Options.
func (s *sources) savedOwners() []source.Holding {
	for _, store := range s.stores() {
		if held := store.Holdings(); held != nil {
			return held
		}
	}
	return nil
}
