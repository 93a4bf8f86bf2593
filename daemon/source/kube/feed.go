package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"edgeway/daemon/source"
	"edgeway/daemon/source/api"
	"edgeway/daemon/source/convert"
)

// feed lists and watches one resource, in one namespace or in all namespaces. A feed exists for as long as its source.
type feed struct {
	source    *Source
	store     *store
	group     func(*client) rest.Interface
	resource  string
	namespace string
	labels    string
	fields    string
	// required reports whether Synced and Status depend on the feed. If the API server denies access to an optional
	// feed's resource or does not know the resource, the feed retries after deniedPause.
	required bool
	kind     string // the Kind of the key
	example  runtime.Object
	newList  func() runtime.Object
	convert  func(*convert.Converter, any) (source.Object, bool)

	health  health
	lists   pace // lists, and watches that start with a list
	watches pace // watches that continue after the last event

	relays  sync.WaitGroup // the goroutines of the watchers
	expired atomic.Int32   // the number of consecutive watches with an expired resource version
}

// session is one run of a feed with one client, and serves as the reflector's ListerWatcher. The reflector (client-go
// v0.37.2) lists in a goroutine that may outlive the run, so a session must not share data with the next session
// without a lock.
type session struct {
	*feed
	client *client
	// streamErr is the error from the last attempt to stream the list.
	streamErr error
}

const (
	minGap      = time.Second
	maxGap      = 10 * time.Second
	maxBackoff  = 2 * time.Second // the delay between connection attempts, plus up to 50 %
	deniedPause = 40 * time.Second
	// A watch lasts for longWatch plus a random time up to longJitter. The API server (v1.36) sends a bookmark on each
	// watch every 59 to 62 s, so Edgeway detects silence early even on a long watch.
	longWatch  = 5 * time.Minute
	longJitter = 5 * time.Minute
	// bookmarkLimit is the longest time that Edgeway waits for data on a long watch. Silence on a long watch is not a
	// fault. After a restart, an API server sends no bookmark for a resource until an object of that resource changes.
	// Some proxies close a connection after a minute of silence.
	bookmarkLimit = 70 * time.Second
	// A short watch lasts for shortWatch plus a random time up to shortJitter. After a long watch without a bookmark,
	// Edgeway uses short watches for shortTime, because the API server also sends a bookmark two seconds before the end
	// of a watch.
	shortWatch  = 45 * time.Second
	shortJitter = 10 * time.Second
	shortTime   = 10 * time.Minute
	// A watch that tests whether the API server works again lasts for testTimeout plus a random time up to testJitter.
	// The jitter spreads the requests of hosts that lost contact with the API server at the same moment.
	testTimeout = 10 * time.Second
	testJitter  = 3 * time.Second
	// listSpread is the maximum random delay before a new list after a resource version has expired. An API server
	// restart invalidates the resource versions of the watches on all hosts.
	listSpread = 4 * time.Second
	// streamTimeout is the maximum duration of a watch that starts with the full list. The limit is long, because a
	// list may take hours over a slow link. Only a silent connection ends a list before streamTimeout.
	streamTimeout = 24 * time.Hour
	// overtime is the delay after which Edgeway cancels a short watch that the API server does not end on time.
	// testOvertime is the same delay for a test watch. Together, a long watch and the test watch that follows it detect
	// a silent API server within 90 s.
	overtime     = 20 * time.Second
	testOvertime = 5 * time.Second
	// maxListSilence is the longest time that Edgeway waits for data during a list. An API server aborts a list that is
	// not ready within a minute.
	maxListSilence = 75 * time.Second
)

// kube-proxy v1.36 uses the same selectors.
const (
	ownServices   = "!service.kubernetes.io/service-proxy-name"
	withClusterIP = "spec.clusterIP!=None"
	ownSlices     = "!" + api.LabelHeadless
)

func makeFeeds(s *Source, o Options, selector labels.Selector) []*feed {
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	with := func(own string) string { return strings.TrimSuffix(own+","+selector.String(), ",") }
	var feeds []*feed
	for _, ns := range namespaces {
		feeds = append(feeds, &feed{
			group: coreGroup, resource: "services", namespace: ns, required: true,
			labels: with(ownServices), fields: withClusterIP,
			example: &corev1.Service{}, newList: func() runtime.Object { return &corev1.ServiceList{} },
			kind: source.KindService, convert: adapt((*convert.Converter).Service),
		}, &feed{
			group: discoveryGroup, resource: "endpointslices", namespace: ns, required: true,
			labels:  with(ownSlices),
			example: &discoveryv1.EndpointSlice{},
			newList: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
			kind:    source.KindEndpointSlice, convert: adapt((*convert.Converter).EndpointSlice),
		})
	}
	feeds = append(feeds, &feed{
		group: networkingGroup, resource: serviceCIDRs,
		example: &networkingv1.ServiceCIDR{}, newList: func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
		kind: source.KindServiceCIDR,
		convert: adapt(func(c *convert.Converter, o *networkingv1.ServiceCIDR) (source.Object, bool) {
			return c.ServiceCIDR(o), true
		}),
	})
	if o.NodeName != "" {
		feeds = append(feeds, &feed{
			group: coreGroup, resource: "nodes",
			fields:  fields.OneTermEqualSelector(metav1.ObjectNameField, o.NodeName).String(),
			example: &corev1.Node{}, newList: func() runtime.Object { return &corev1.NodeList{} },
			kind: source.KindNode,
			convert: adapt(func(c *convert.Converter, o *corev1.Node) (source.Object, bool) {
				return c.Node(o), true
			}),
		})
	}
	for _, f := range feeds {
		f.source = s
		f.lists = pace{min: minGap, max: maxGap}
		f.watches = pace{min: minGap, max: minGap}
	}
	return feeds
}

func coreGroup(c *client) rest.Interface       { return c.core }
func discoveryGroup(c *client) rest.Interface  { return c.discovery }
func networkingGroup(c *client) rest.Interface { return c.networking }

// run lists and watches the resource with the client until ctx is done.
func (f *feed) run(ctx context.Context, c *client, events chan<- event) {
	f.store = newStore(ctx, f, events, f.store)
	defer f.relays.Wait()
	f.lists.ease() // the faults of the last client may not apply to this client
	// By default, the reflector logs every failed attempt, although the Status already contains the fault.
	quiet := logr.Discard()
	s := &session{feed: f, client: c}
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  s.list,
		WatchFuncWithContext: s.watch,
	}, f.example, f.store, cache.ReflectorOptions{
		Name:    f.resource,
		Logger:  &quiet,
		Backoff: &wait.Backoff{Duration: minGap, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxBackoff},
	})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

func (s *session) request(o *metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = s.labels, s.fields
	return s.group(s.client).Get().Namespace(s.namespace).Resource(s.resource).
		VersionedParams(o, s.client.params).
		MaxRetries(0) // the pace controls the retries
}

// list is the reflector's fallback for API servers that cannot stream a list. If a stream failed for a reason other
// than missing support, a list would fail too.
func (s *session) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	streamErr := s.streamErr
	s.streamErr = nil
	switch {
	case o.Continue != "":
	case streamErr == nil:
		if err := s.lists.wait(ctx); err != nil {
			return nil, err
		}
	case !refusesStream(streamErr):
		return nil, streamErr
	}
	if err := s.awaitPause(ctx, "list"); err != nil {
		return nil, err
	}
	c := &call{verb: "list", list: true, maxSilence: maxListSilence}
	out, err := s.request(&o).Do(c.withContext(ctx)).Get()
	if lost := c.incompleteError(); lost != nil {
		err = lost
	}
	if err == nil {
		err = s.validateList(out)
	}
	if err != nil {
		return nil, s.recordFailure(ctx, c, err)
	}
	s.health.noteContact()
	return out, nil
}

// validateList rejects a decodable response that is not a list of the feed's kind, because Edgeway deletes all objects
// that a list does not contain.
func (f *feed) validateList(got runtime.Object) error {
	if reflect.TypeOf(got) != reflect.TypeOf(f.newList()) {
		return fmt.Errorf("the response is not a list of %s", f.resource)
	}
	if l, err := meta.ListAccessor(got); err != nil || l.GetResourceVersion() == "" {
		return fmt.Errorf("the list of %s has no resource version", f.resource)
	}
	return nil
}

// watch starts a watch, or streams the list and then continues with a watch.
func (s *session) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p, w := &s.watches, s.nextWatch()
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		p, w = &s.lists, &watcher{
			timeout: streamTimeout, call: &call{verb: "list", list: true, maxSilence: maxListSilence},
		}
	}
	c := w.call
	if err := errors.Join(p.wait(ctx), s.awaitPause(ctx, c.verb)); err != nil {
		return nil, err
	}
	seconds := int64(w.timeout.Seconds())
	o.TimeoutSeconds, o.Watch = &seconds, true
	inner, err := s.request(&o).Watch(c.withContext(ctx))
	if lost := c.incompleteError(); lost != nil {
		err = lost // client-go returns an empty watch if a connection timed out or was closed
	}
	if err != nil {
		c.Close()
		return nil, s.watchError(ctx, c, err)
	}
	s.streamErr = nil
	return w.start(ctx, s, inner), nil
}

// longPause is the longest pause that Edgeway does not report as a fault.
const longPause = 5 * time.Second

// awaitPause waits for the end of a pause that the API server requested, perhaps in a response to another feed. A long
// pause replaces an earlier connection failure as the feed's fault.
func (s *session) awaitPause(ctx context.Context, verb string) error {
	left := s.client.transport.pause.left()
	if _, before := s.health.get(); left > longPause && !before.refused {
		why := apierrors.NewTooManyRequests("the server asked for a pause (Retry-After)", int(left.Seconds()))
		s.health.fail(newFailure(s.client.host, verb+" "+s.resource, why, s.source.options.Kubeconfig))
	}
	return s.client.transport.pause.wait(ctx)
}

// nextWatch returns the next watch and its time limits. If the API server might not be working, for example after a
// watch without a bookmark, nextWatch returns a short watch, which soon ends with a bookmark.
func (f *feed) nextWatch() *watcher {
	contact, failure := f.health.get()
	w := &watcher{}
	var quiet time.Duration
	switch {
	case failure.Message != "" || time.Since(contact) > testTimeout:
		w.timeout = testTimeout + rand.N(testJitter)
		quiet = w.timeout + testOvertime
	case f.health.lacksBookmarks():
		w.timeout = shortWatch + rand.N(shortJitter)
		quiet = w.timeout + overtime
	default:
		w.long = true
		w.timeout = longWatch + rand.N(longJitter)
		quiet = bookmarkLimit
	}
	w.call = &call{verb: "watch", maxSilence: quiet}
	return w
}

// watchError converts the error of a failed watch to an error that the reflector (client-go v0.37.2) handles
// correctly.
func (s *session) watchError(ctx context.Context, c *call, err error) error {
	switch {
	case c.list && refusesStream(err):
		s.streamErr = err
		return err
	case c.list && !isAhead(err):
		// After some types of errors, the reflector sleeps even if ctx is done, so watchError returns an error of
		// another type.
		s.streamErr = s.recordFailure(ctx, c, err)
		return s.streamErr
	case s.hasExpired(err):
		return err
	}
	fault := s.recordFailure(ctx, c, err)
	if ctx.Err() == nil && (c.incompleteError() != nil || isOverloaded(err)) {
		// After a TooManyRequests error, the reflector starts another watch without a new list.
		return apierrors.NewTooManyRequestsError(fault.Error())
	}
	return err
}

// recordFailure stores the error from a request in the feed's health. The returned error only describes the failure in
// plain words, so the reflector cannot interpret it.
func (s *session) recordFailure(ctx context.Context, c *call, err error) error {
	if ctx.Err() != nil {
		return err // the feed is stopping
	}
	found := newFailure(s.client.host, c.verb+" "+s.resource, err, s.source.options.Kubeconfig)
	fault := errors.New(found.Message)
	if !s.required && isDenied(err) {
		if apierrors.IsForbidden(err) {
			s.health.fail(found)
		}
		s.lists.delay(deniedPause, deniedPause/4)
		s.source.log.Debug("cannot read the resource", "resource", s.resource, "error", fault)
		s.store.answered()
		return fault
	}
	if c.incompleteError() != nil {
		s.lists.ease() // an unreachable server received no request for a list
	}
	s.health.fail(found)
	return fault
}
