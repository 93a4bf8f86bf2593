// Package kube is the source that lists and watches the objects of a Kubernetes API server: Services, EndpointSlices,
// the host's own Node, and ServiceCIDRs.
//
// The package uses client-go's rest and cache packages, but not its clientset. Instead of storing Kubernetes objects,
// the package converts each object immediately after decoding it. The package supports hosts that are far away from the
// API server. The package detects a silent connection within half a minute, and an unanswered request or a silent watch
// within 90 seconds. After a lost connection, the watch resumes from the last event. A list may take any amount of time
// as long as it delivers data. The package sends a failing API server at most one full-list request per second, and
// increases the interval with each request. The package also respects Retry-After.
//
// Only a complete list, or an event for an object of the requested kind, counts as contact. In a quiet cluster, the
// only events are bookmarks. The API server sends a bookmark each minute and another one before the end of a watch.
//
// A session requests a list or a watch (feed.go). The transport cancels a request that is silent for too long
// (transport.go), and client-go adds the credentials. Package dialer opens the connections. A watcher decides whether a
// watch ended with a fault (watch.go). When the kubeconfig changes, Edgeway creates a new client and new sessions
// (credentials.go).
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"edgeway/daemon/source"
	"edgeway/daemon/source/kube/dialer"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options specifies the API server and the objects to read.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Edgeway uses the file's current context.
	Kubeconfig string
	// AllowExecPlugins allows the kubeconfig to run a program that returns credentials.
	AllowExecPlugins bool
	// Namespaces lists the namespaces that Edgeway reads Services and EndpointSlices from. An empty list means all
	// namespaces.
	Namespaces []string
	// LabelSelector selects Services and EndpointSlices. The control plane copies a Service's labels to its
	// EndpointSlices. An empty selector matches all objects.
	LabelSelector string
	// NodeName is the name of the host's Node. If NodeName is empty, the source reads no Nodes.
	NodeName string
	// UserAgent is the User-Agent header of every request. The default is client-go's user agent.
	UserAgent string
	// Mark is the packet mark of the Source's connections, or 0 for no mark.
	Mark uint32
	// KnownAddrs returns the API server addresses that TLS handshakes proved in an earlier run, most recent first.
	// KnownAddrs returns nil until the last-known state is loaded.
	KnownAddrs func() []source.ServerAddr
	// If BeforeLists is not nil, the source waits for it to return before sending requests.
	BeforeLists func(context.Context)
	// Dial opens the connections. The default is net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Lookup returns the addresses of a host name. By default, the dialer queries this host's name servers.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Logger *slog.Logger
	// If BeforeConvert is not nil, the Source calls it with each object's key before the conversion.
	BeforeConvert func(source.Key)
}

// Source reads objects from the Kubernetes API. Use New to create a Source.
type Source struct {
	log        *slog.Logger
	options    Options
	dialer     *dialer.Dialer
	client     atomic.Pointer[client] // the client for the kubeconfig in use
	listed     atomic.Pointer[client] // the client that last listed all objects, or nil
	feeds      []*feed
	panics     chan error       // receives the panics of the source's goroutines
	sentServer source.APIServer // the last value that Run passed to the sink; only Run uses this field
	// newClients receives a client for each kubeconfig that differs from the one in use.
	newClients chan *client

	mu          sync.Mutex
	synced      bool
	credentials credentials
}

var _ source.Source = (*Source)(nil)

// New reads the kubeconfig, but does not contact the API server. Errors name the file and the invalid field.
func New(o Options) (*Source, error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", o.LabelSelector, err)
	}
	s := newSource(o, selector)
	if s.credentials.access, err = s.load(); err != nil {
		return nil, err
	}
	c, err := newClient(s.credentials.access.config, s.dialer)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	c.digest = s.credentials.access.digest
	s.client.Store(c)
	return s, nil
}

func newSource(o Options, selector labels.Selector) *Source {
	if o.BeforeLists == nil {
		o.BeforeLists = func(context.Context) {}
	}
	s := &Source{
		log: o.Logger, options: o, dialer: newDialer(o), panics: make(chan error, 1), newClients: make(chan *client),
	}
	s.feeds = makeFeeds(s, o, selector)
	return s
}

func newDialer(o Options) *dialer.Dialer {
	return dialer.New(dialer.Options{
		Mark: o.Mark, KnownAddrs: o.KnownAddrs, Dial: o.Dial, Lookup: o.Lookup, Logger: o.Logger,
	})
}

// Name implements source.Source.
func (s *Source) Name() string { return "kube" }

// APIServer returns the URL of the API server as written in the current kubeconfig.
func (s *Source) APIServer() string { return s.client.Load().host }

// Status implements source.Source. LastContact is the earliest of the required feeds' last contact times.
func (s *Source) Status() source.Status {
	s.mu.Lock()
	st := source.Status{Synced: s.synced}
	s.mu.Unlock()
	first := true
	for _, f := range s.feeds {
		if !f.required {
			continue
		}
		contact, _ := f.health.get()
		if first || contact.Before(st.LastContact) {
			st.LastContact = contact
		}
		first = false
	}
	failure := s.failed()
	st.Fault, st.Refused = failure.Fault, failure.refused
	return st
}

func (s *Source) failed() failure {
	for _, f := range s.feeds {
		if _, failure := f.health.get(); f.required && failure.Message != "" {
			return failure
		}
	}
	return failure{}
}

// After listing the required resources, the source waits at most optionalWait for the Node and the ServiceCIDRs before
// it calls Synced.
const optionalWait = time.Second

// Run implements source.Source.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	var poll sync.WaitGroup
	s.spawn(&poll, func() { s.poll(ctx) })
	defer poll.Wait()
	defer cancel()
	for {
		next := s.read(ctx, sink)
		if next == nil {
			return nil
		}
		s.client.Swap(next).end()
		s.log.Info("new credentials in force", "message_id", messageid.CredentialsReplaced, "server", next.host)
	}
}

// read runs all feeds with the current client until the kubeconfig changes, and returns the next client, or nil if ctx
// is done.
func (s *Source) read(ctx context.Context, sink source.Sink) *client {
	c := s.client.Load()
	c.begin()
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	events := make(chan event)
	waiting := make(map[*feed]bool, len(s.feeds))
	for _, f := range s.feeds {
		waiting[f] = f.required
		s.spawn(&group, func() {
			s.options.BeforeLists(ctx)
			f.run(ctx, c, events)
		})
	}
	s.dialer.Recall()
	s.sendAddrs(sink)
	var enough <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.panics:
			contain.Rethrow(err)
		case <-s.dialer.Changed():
			s.sendAddrs(sink)
		case next := <-s.newClients:
			return next
		case <-enough:
			s.finishSync(sink)
			enough, waiting = nil, nil
		case e := <-events:
			e.apply(sink)
			if !e.answered || waiting == nil {
				continue
			}
			delete(waiting, e.feed)
			switch {
			case len(waiting) == 0:
				s.finishSync(sink)
				enough, waiting = nil, nil
			case enough == nil && allOptional(waiting):
				enough = time.After(optionalWait)
			}
		}
	}
}

func allOptional(waiting map[*feed]bool) bool {
	for _, required := range waiting {
		if required {
			return false
		}
	}
	return true
}

// sendAddrs passes the configured and proven addresses of the API server or of its proxy to the sink.
func (s *Source) sendAddrs(sink source.Sink) {
	now, before := s.dialer.Server(s.APIServer()), s.sentServer
	if now.Name == before.Name && slices.Equal(now.Addrs, before.Addrs) &&
		slices.Equal(now.ProvenAddrs, before.ProvenAddrs) {
		return
	}
	s.sentServer = now
	if len(now.Addrs) > 0 {
		sink.Upsert(&now)
	}
	if before.Name != now.Name && len(before.Addrs) > 0 {
		sink.Delete(before.Key())
	}
}

// finishSync calls Synced. A plan needs the addresses of the API server, so finishSync first passes them to the sink.
func (s *Source) finishSync(sink source.Sink) {
	s.sendAddrs(sink)
	s.listed.Store(s.client.Load())
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	sink.Synced()
}

// event reports a new version of an object, the deletion of an object, or a feed's complete response (a list or a
// denial).
type event struct {
	feed     *feed
	upsert   source.Object
	gone     source.Key
	answered bool
}

func (e event) apply(sink source.Sink) {
	switch {
	case e.upsert != nil:
		sink.Upsert(e.upsert)
	case e.gone != source.Key{}:
		sink.Delete(e.gone)
	}
}
