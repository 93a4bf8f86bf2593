package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"edgeway/daemon/source/convert"
)

// feed follows one resource, in one namespace or in all.
type feed struct {
	source    *Source
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

	expired atomic.Int32 // watches in a row that began too late
	// streamErr is the error of the last attempt to get the list as a stream; used by the
	// reflector's goroutine alone.
	streamErr error
	// server is whose list the feed asked for last; used by the reflector's goroutine alone.
	server string
}

// The limits of one feed.
const (
	minGap      = time.Second
	maxGap      = 10 * time.Second
	maxBackoff  = 5 * time.Second // between attempts to connect
	deniedPause = time.Minute
	listTimeout = 2 * time.Minute
	// streamTimeout bounds a watch that begins with the full list, which a thin link may need long for.
	streamTimeout = 10 * time.Minute
	// watchTimeout bounds other watches, plus up to as much again by chance.
	watchTimeout = time.Minute
	// silence is how long a watch may bring nothing. The API server sends a bookmark every minute.
	silence = 2*watchTimeout + 15*time.Second
)

// The selectors of kube-proxy v1.36.
const (
	ownServices   = "!service.kubernetes.io/service-proxy-name"
	withClusterIP = "spec.clusterIP!=None"
	ownSlices     = "!" + corev1.IsHeadlessService
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
	st := &store{feed: f, ctx: ctx, events: events}
	// What the reflector would log, once for every attempt, this package logs once for every change.
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return f.list(ctx, o, st) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return f.watch(ctx, o, st) },
	}, f.example, st, cache.ReflectorOptions{
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
func (f *feed) list(ctx context.Context, o metav1.ListOptions, st *store) (runtime.Object, error) {
	streamErr := f.streamErr
	f.streamErr = nil
	switch {
	case o.Continue != "":
	case streamErr == nil:
		if err := f.lists.wait(ctx); err != nil {
			return nil, err
		}
	case !refusesStream(streamErr):
		return nil, streamErr
	}
	f.fromServer(&o)
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	out := f.newList()
	if err := f.request(&o).Do(limited).Into(out); err != nil {
		return nil, f.failed(ctx, "list", err, st)
	}
	return out, nil
}

// watch starts a watch, or a stream of the list that goes on as a watch.
func (f *feed) watch(ctx context.Context, o metav1.ListOptions, st *store) (watch.Interface, error) {
	stream := o.SendInitialEvents != nil && *o.SendInitialEvents
	limit, p, verb := watchTimeout+rand.N(watchTimeout), &f.watches, "watch"
	if stream {
		limit, p, verb = streamTimeout, &f.lists, "list"
	}
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	if !stream && f.server != f.source.client.host() {
		return nil, apierrors.NewResourceExpired("the objects are of another API server")
	}
	if stream {
		f.fromServer(&o)
	}
	seconds := int64(limit.Seconds())
	o.TimeoutSeconds, o.Watch = &seconds, true
	w, err := f.request(&o).Watch(ctx)
	if err != nil {
		if stream && refusesStream(err) {
			f.streamErr = err
			return nil, err
		}
		if !stream && f.hasExpired(err) {
			return nil, err
		}
		fault := f.failed(ctx, verb, err, st)
		if !stream {
			// The reflector looks at the error itself: after a refused connection it goes on with
			// the watch, it need not list again.
			return nil, err
		}
		// Here it would sleep without regard to ctx (client-go v0.37.2): a plain error prevents that.
		f.streamErr = fault
		return nil, fault
	}
	f.streamErr = nil
	// No contact yet: client-go gives an empty watch, and no error, after a time-out too (rest/request.go in v0.37.2).
	return f.guard(ctx, w), nil
}

// fromServer notes whose list is asked for. Versions of objects mean nothing to another server.
func (f *feed) fromServer(o *metav1.ListOptions) {
	host := f.source.client.host()
	if f.server != host && f.server != "" && o.Continue == "" {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = "" // the API server refuses it without a version
		}
	}
	f.server = host
}

// failed notes an error of a request and gives it in plain words, as an error that the reflector does
// not know how to act on.
func (f *feed) failed(ctx context.Context, verb string, err error, st *store) error {
	if ctx.Err() != nil {
		return err // we are stopping
	}
	fault := errors.New(describe(f.source.client.host(), verb+" "+f.resource, err))
	if !f.required && isDenied(err) {
		f.lists.hold(deniedPause)
		f.source.log.Debug("resource not readable", "resource", f.resource, "error", fault)
		st.answered()
		return fault
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		f.lists.ease() // a server that was not reached was not asked for a list
	}
	f.health.fail(fault.Error())
	f.source.logChange()
	return fault
}

// String names the feed in tests.
func (f *feed) String() string { return fmt.Sprintf("%s of namespace %q", f.resource, f.namespace) }
