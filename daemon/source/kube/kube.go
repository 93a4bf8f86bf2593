// Package kube is the source that lists and watches a Kubernetes API server: Services,
// EndpointSlices, the host's own Node, and ServiceCIDRs.
//
// It uses client-go's rest and cache packages, without the clientset, and keeps no Kubernetes object:
// each is converted as soon as it is decoded. It is made for hosts far away from the API server:
// a connection that went silent is noticed within half a minute, a request without an answer and a
// watch that went silent within 90 seconds; after a loss the watch goes on where it stopped; a list is
// given time as long as something of it arrives; and an API server in trouble is asked for a full list
// at most once a second, ever more rarely, and not before the time that it names (Retry-After).
//
// Only a whole list or an event, of the right kind, counts as contact. In a quiet cluster the
// bookmarks are these events: one comes each minute, and one before the end of a watch.
//
// A request passes these layers: a session asks for a list or a watch (feed.go), the transport limits silence
// (transport.go), client-go adds the credentials, and the dialer connects to an address that proves to be the API
// server's (dialer.go). A watcher judges how a watch went (watch.go). A changed kubeconfig makes a new client and new
// sessions (credentials.go).
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

// Options say where the API server is and what to read of it.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file; its current context is used.
	Kubeconfig string
	// AllowExecPlugins lets the kubeconfig run a program to get credentials.
	AllowExecPlugins bool
	// Namespaces limits Services and EndpointSlices to these; empty: all.
	Namespaces []string
	// LabelSelector limits Services, and their EndpointSlices by the same labels: the control plane
	// copies the labels of a Service to its slices. Empty: all.
	LabelSelector string
	// NodeName is the name of the host's Node; empty: Nodes are not read.
	NodeName string
	// UserAgent is sent with every request; empty: client-go's.
	UserAgent string
	// Mark is the packet mark of the connections; 0: none.
	Mark uint32
	// KnownAddrs returns the proven addresses of the last run, the latest proof first, once they are known; nil if
	// there are none.
	KnownAddrs func() []source.ServerAddr
	// Dial makes the connections. Nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Lookup returns the addresses of a name. Nil means the host's name servers.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Logger *slog.Logger
	// Before is convert.Converter.Before.
	Before func(source.Key)
}

// Source is the Kubernetes API as a source. It is made by New.
type Source struct {
	log     *slog.Logger
	options Options
	dialer  *dialer
	client  atomic.Pointer[client] // of the kubeconfig in force
	feeds   []*feed
	panics  chan error       // of the source's goroutines
	told    source.APIServer // the latest that the sink was told; used by Run alone
	// replaced receives the client of each kubeconfig that differs from the one in force.
	replaced chan *client

	mu          sync.Mutex
	synced      bool
	logged      logState
	credentials credentials
}

var _ source.Source = (*Source)(nil)

// New checks the options and reads the kubeconfig, but does not contact the API server. Errors name
// the file and the field that is to blame.
func New(o Options) (*Source, error) {
	selector, err := checkOptions(&o)
	if err != nil {
		return nil, err
	}
	s := newSource(o, selector)
	if s.credentials.access, err = s.load(); err != nil {
		return nil, err
	}
	c, err := newClient(s.credentials.access.config, s.dialer)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	s.client.Store(c)
	return s, nil
}

// newSource returns a source without a client.
func newSource(o Options, selector labels.Selector) *Source {
	s := &Source{
		log: o.Logger, options: o, dialer: newDialer(o), panics: make(chan error, 1), replaced: make(chan *client),
	}
	s.feeds = makeFeeds(s, o, selector)
	return s
}

func checkOptions(o *Options) (labels.Selector, error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", o.LabelSelector, err)
	}
	for _, ns := range o.Namespaces {
		if faults := validation.IsDNS1123Label(ns); len(faults) > 0 {
			return nil, fmt.Errorf("namespace %q: %s", ns, faults[0])
		}
	}
	o.Namespaces = slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
	if o.NodeName != "" {
		if faults := validation.IsDNS1123Subdomain(o.NodeName); len(faults) > 0 {
			return nil, fmt.Errorf("node name %q: %s", o.NodeName, faults[0])
		}
	}
	if o.Logger == nil {
		return nil, errors.New("logger: missing")
	}
	return selector, nil
}

// Name implements source.Source.
func (s *Source) Name() string { return "kube" }

// APIServer returns the URL of the API server as the kubeconfig in force has it.
func (s *Source) APIServer() string { return s.client.Load().host }

// Status implements source.Source. LastContact is that of whichever of Services and EndpointSlices
// heard last from the API server longer ago.
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
	st.Err, st.Fix, st.Refused = failure.text, failure.fix, failure.refused
	return st
}

// failed returns the failure of the first required feed that has one.
func (s *Source) failed() failure {
	for _, f := range s.feeds {
		if _, failure := f.health.get(); f.required && failure.text != "" {
			return failure
		}
	}
	return failure{}
}

// optionalWait is how long Synced waits, once all that must be there is there, for the first answer
// about the Node and the ServiceCIDRs.
const optionalWait = time.Second

// Run implements source.Source.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	var poll sync.WaitGroup
	s.work(&poll, func() { s.poll(ctx) })
	defer poll.Wait()
	defer cancel()
	return s.read(ctx, sink)
}

// read follows the resources until ctx ends.
func (s *Source) read(ctx context.Context, sink source.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	run := s.startFeeds(ctx)
	defer func() {
		cancel()
		run.group.Wait()
	}()
	s.dialer.recall()
	s.tellAddrs(sink)
	waiting := make(map[*feed]bool, len(s.feeds))
	for _, f := range s.feeds {
		waiting[f] = f.required
	}
	var enough <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.panics:
			contain.Rethrow(err)
		case <-s.dialer.addrs.changed:
			s.tellAddrs(sink)
		case next := <-s.replaced:
			run.stop(s, sink)
			s.client.Swap(next).end()
			s.log.Info("new credentials in force", "message_id", messageid.CredentialsReplaced, "server", next.host)
			run = s.startFeeds(ctx)
			s.tellAddrs(sink)
		case <-enough:
			s.sync(sink)
			enough, waiting = nil, nil
		case e := <-run.events:
			e.apply(sink)
			if !e.answered || waiting == nil {
				continue
			}
			delete(waiting, e.feed)
			switch {
			case len(waiting) == 0:
				s.sync(sink)
				enough, waiting = nil, nil
			case enough == nil && allOptional(waiting):
				enough = time.After(optionalWait)
			}
		}
	}
}

// feedRun is a run of all feeds with one client.
type feedRun struct {
	cancel context.CancelFunc
	events chan event
	group  sync.WaitGroup
}

func (s *Source) startFeeds(source context.Context) *feedRun {
	c := s.client.Load()
	c.begin()
	ctx, cancel := context.WithCancel(source)
	run := &feedRun{cancel: cancel, events: make(chan event)}
	for _, f := range s.feeds {
		s.work(&run.group, func() { f.run(ctx, source, c, run.events) })
	}
	return run
}

// stop ends the run, and applies the events that are on their way.
func (r *feedRun) stop(s *Source, sink source.Sink) {
	r.cancel()
	var group sync.WaitGroup
	ended := make(chan struct{})
	s.work(&group, func() {
		r.group.Wait()
		close(ended)
	})
	for {
		select {
		case e := <-r.events:
			e.apply(sink)
		case <-ended:
			return
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

// tellAddrs hands over the addresses of the API server, or of the proxy to it: the configured and the proven ones.
func (s *Source) tellAddrs(sink source.Sink) {
	now, before := s.dialer.addrs.server(s.APIServer()), s.told
	if now.Name == before.Name && slices.Equal(now.Addrs, before.Addrs) && slices.Equal(now.Proven, before.Proven) {
		return
	}
	s.told = now
	if len(now.Addrs) > 0 {
		sink.Upsert(&now)
	}
	if before.Name != now.Name && len(before.Addrs) > 0 {
		sink.Delete(before.Key())
	}
}

// sync comes after the addresses of the API server: no plan shall be made without them.
func (s *Source) sync(sink source.Sink) {
	s.tellAddrs(sink)
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	sink.Synced()
}

// event is one thing that a feed saw: a new version of an object, its absence, or the feed's first
// complete answer.
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
