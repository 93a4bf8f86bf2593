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

// feed follows one resource, in one namespace or in all.
type feed struct {
	source    *Source
	store     *store
	client    rest.Interface
	resource  string
	namespace string
	labels    string
	fields    string
	// required feeds decide about Synced and Status. The others may be forbidden or unknown to the
	// API server: then they are asked for again once in deniedPause.
	required bool
	example  runtime.Object
	newList  func() runtime.Object
	convert  func(*convert.Converter, any) (source.Object, bool)

	health  health
	lists   pace // full lists and watches that begin with one
	watches pace // watches that go on where the last one ended

	relays  sync.WaitGroup // of the guards
	expired atomic.Int32   // watches in a row that began too late
}

// round is one run of a feed. The reflector (client-go v0.37.2) lists in a goroutine that may outlive the run, and then
// must not share anything with the next run that no lock protects.
type round struct {
	*feed
	// streamErr is the error of the last attempt to get the list as a stream.
	streamErr error
	// server is the API server that the round last asked for the list.
	server string
}

// The limits of one feed.
const (
	minGap      = time.Second
	maxGap      = 10 * time.Second
	maxBackoff  = 5 * time.Second // between attempts to connect
	deniedPause = time.Minute
	// watchTimeout bounds a watch, plus up to watchJitter by chance. The API server sends a bookmark
	// every minute and two seconds before the end of a watch: load balancers often close a connection
	// that is silent for a minute.
	watchTimeout = 45 * time.Second
	watchJitter  = 10 * time.Second
	// probeTimeout bounds a watch that is to show soon whether the API server works again, plus up to probeJitter by chance:
	// hosts that lost the API server at the same moment do not ask in step until it has something to tell.
	probeTimeout = 10 * time.Second
	probeJitter  = 3 * time.Second
	// listSpread is in which time hosts list anew whose watches began too late, as all do at once after a restart of the
	// API server.
	listSpread = 4 * time.Second
	// streamTimeout bounds a watch that begins with the full list. Only its silence may end it: it
	// may take hours over a thin link.
	streamTimeout = 24 * time.Hour
	// overtime is how long after its time a watch may be silent.
	overtime = 20 * time.Second
	// silence is how long a list may be silent. An API server gives up one that it does not get ready
	// in a minute.
	silence = watchTimeout + watchJitter + overtime
)

// The selectors of kube-proxy v1.36.
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
			client: s.client.core, resource: "services", namespace: ns, required: true,
			labels: with(ownServices), fields: withClusterIP,
			example: &corev1.Service{}, newList: func() runtime.Object { return &corev1.ServiceList{} },
			convert: toService,
		}, &feed{
			client: s.client.discovery, resource: "endpointslices", namespace: ns, required: true,
			labels:  with(ownSlices),
			example: &discoveryv1.EndpointSlice{}, newList: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
			convert: toEndpointSlice,
		})
	}
	feeds = append(feeds, &feed{
		client: s.client.networking, resource: "servicecidrs",
		example: &networkingv1.ServiceCIDR{}, newList: func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
		convert: toServiceCIDR,
	})
	if o.NodeName != "" {
		feeds = append(feeds, &feed{
			client: s.client.core, resource: "nodes",
			fields:  fields.OneTermEqualSelector(metav1.ObjectNameField, o.NodeName).String(),
			example: &corev1.Node{}, newList: func() runtime.Object { return &corev1.NodeList{} },
			convert: toNode,
		})
	}
	for _, f := range feeds {
		f.source = s
		f.lists = pace{min: minGap, max: maxGap}
		f.watches = pace{min: minGap, max: minGap}
	}
	return feeds
}

// run follows the resource until ctx ends.
func (f *feed) run(ctx context.Context, events chan<- event) {
	f.store = newStore(ctx, f, events, f.store)
	defer f.relays.Wait()
	// What the reflector would log, once for every attempt, this package logs once for every change.
	quiet := logr.Discard()
	now := &round{feed: f}
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  now.list,
		WatchFuncWithContext: now.watch,
	}, f.example, f.store, cache.ReflectorOptions{
		Name:    f.resource,
		Logger:  &quiet,
		Backoff: &wait.Backoff{Duration: minGap, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxBackoff},
	})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

func (f *feed) request(o *metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = f.labels, f.fields
	return f.client.Get().Namespace(f.namespace).Resource(f.resource).
		VersionedParams(o, f.source.client.params).
		MaxRetries(0) // the pace decides when to try again
}

// list is the reflector's fallback for API servers that cannot stream a list. Where the stream
// failed for any other reason the list would fail too.
func (r *round) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	streamErr := r.streamErr
	r.streamErr = nil
	switch {
	case o.Continue != "":
	case streamErr == nil:
		if err := r.lists.wait(ctx); err != nil {
			return nil, err
		}
	case !refusesStream(streamErr):
		return nil, streamErr
	}
	if err := r.leaveAlone(ctx, "list"); err != nil {
		return nil, err
	}
	r.fromServer(&o)
	x := &exchange{verb: "list", list: true, quiet: silence}
	out, err := r.request(&o).Do(x.in(ctx)).Get()
	if lost := x.lost(); lost != nil {
		err = lost
	}
	if err == nil {
		err = r.checkList(out)
	}
	if err != nil {
		return nil, r.failed(ctx, x, err)
	}
	r.ok()
	return out, nil
}

// checkList refuses what decodes, but is no list of this kind: what is not in a list is deleted.
func (f *feed) checkList(got runtime.Object) error {
	if reflect.TypeOf(got) != reflect.TypeOf(f.newList()) {
		return fmt.Errorf("the answer is no list of %s", f.resource)
	}
	if l, err := meta.ListAccessor(got); err != nil || l.GetResourceVersion() == "" {
		return fmt.Errorf("the list of %s has no resource version", f.resource)
	}
	return nil
}

// watch starts a watch, or a stream of the list that goes on as a watch.
func (r *round) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	stream := o.SendInitialEvents != nil && *o.SendInitialEvents
	p, x, limit := &r.watches, &exchange{verb: "watch"}, r.watchTime()
	x.quiet = limit + overtime
	if stream {
		p, x, limit = &r.lists, &exchange{verb: "list", list: true, quiet: silence}, streamTimeout
	}
	if err := errors.Join(p.wait(ctx), r.leaveAlone(ctx, x.verb)); err != nil {
		return nil, err
	}
	if !stream && r.server != r.source.client.host() {
		return nil, apierrors.NewResourceExpired("the objects are of another API server")
	}
	if stream {
		r.fromServer(&o)
	}
	seconds := int64(limit.Seconds())
	o.TimeoutSeconds, o.Watch = &seconds, true
	w, err := r.request(&o).Watch(x.in(ctx))
	if lost := x.lost(); lost != nil {
		err = lost // client-go gives an empty watch where a connection timed out or was closed
	}
	if err != nil {
		x.Close()
		return nil, r.watchFailed(ctx, x, err)
	}
	r.streamErr = nil
	return r.guard(ctx, w, x), nil
}

// longHold is how long an API server must want to be left alone for that to be told: who is to come back in a second is not.
const longHold = 5 * time.Second

// leaveAlone waits while the API server wants no request. It may have said so to another feed; this one has no contact meanwhile.
func (f *feed) leaveAlone(ctx context.Context, verb string) error {
	left := f.source.client.held()
	if _, before := f.health.get(); left > longHold && before.text == "" {
		why := apierrors.NewTooManyRequests("it wants to be left alone", int(left.Seconds()))
		f.health.fail(newFault(f.source.client.host(), verb+" "+f.resource, why, f.source.options.Kubeconfig))
		f.source.logChange()
	}
	return f.source.client.wait(ctx)
}

// watchTime is short when it is in doubt whether the API server works, as after a watch without a
// bookmark at its end, which a busy server may be too late to send: a watch that ends soon brings one soon.
func (f *feed) watchTime() time.Duration {
	if contact, fault := f.health.get(); fault.text != "" || time.Since(contact) > probeTimeout {
		return probeTimeout + rand.N(probeJitter)
	}
	return watchTimeout + rand.N(watchJitter)
}

// watchFailed gives the error that makes the reflector (client-go v0.37.2) do what is needed.
func (r *round) watchFailed(ctx context.Context, x *exchange, err error) error {
	switch {
	case x.list && refusesStream(err):
		r.streamErr = err
		return err
	case x.list && !isAhead(err):
		// After some errors the reflector would sleep without regard to ctx: a plain one prevents that.
		r.streamErr = r.failed(ctx, x, err)
		return r.streamErr
	case r.hasExpired(err):
		return err
	}
	fault := r.failed(ctx, x, err)
	if ctx.Err() == nil && (x.lost() != nil || isOverloaded(err)) {
		// The reflector goes on with the watch after this one; it need not list again.
		return apierrors.NewTooManyRequestsError(fault.Error())
	}
	return err
}

// ok notes that the API server works.
func (f *feed) ok() {
	if f.health.ok() {
		f.source.logChange()
	}
}

// fromServer notes whose list is asked for. Versions of objects mean nothing to another server.
func (r *round) fromServer(o *metav1.ListOptions) {
	host := r.source.client.host()
	if r.server != host && r.server != "" && o.Continue == "" {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = "" // the API server refuses it without a version
		}
	}
	r.server = host
}

// failed notes an error of a request and gives it in plain words, as an error that the reflector does
// not know how to act on.
func (f *feed) failed(ctx context.Context, x *exchange, err error) error {
	if ctx.Err() != nil {
		return err // we are stopping
	}
	now := newFault(f.source.client.host(), x.verb+" "+f.resource, err, f.source.options.Kubeconfig)
	fault := errors.New(now.text)
	if !f.required && isDenied(err) {
		f.lists.hold(deniedPause, deniedPause/4)
		f.source.log.Debug("resource not readable", "resource", f.resource, "error", fault)
		f.store.answered()
		return fault
	}
	if x.lost() != nil {
		f.lists.ease() // a server that was not reached was not asked for a list
	}
	f.health.fail(now)
	f.source.logChange()
	return fault
}

// String names the feed in tests.
func (f *feed) String() string { return fmt.Sprintf("%s of namespace %q", f.resource, f.namespace) }
