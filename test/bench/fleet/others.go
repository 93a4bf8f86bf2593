package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"edgeway/test/e2e/cluster"
)

const pause = 100 * time.Millisecond

// otherClients runs two clients that do not belong to the fleet and send few requests: a kubectl user, and a controller
// with a service account.
type otherClients struct {
	stop func()
	done sync.WaitGroup
	mu   sync.Mutex
	took map[measure][]float64 // response times in seconds
}

// measureOthers measures the response times of the clients outside the fleet until the caller calls end. Each client
// retries failed requests, and a response time includes the retries.
func (l *lab) measureOthers(ctx context.Context) (*otherClients, error) {
	user := l.cluster.Config(cluster.Edgeway)
	controller := rest.CopyConfig(user)
	controller.BearerToken = l.controllerToken
	ctx, stop := context.WithCancel(ctx)
	o := &otherClients{stop: stop, took: map[measure][]float64{}}
	for name, config := range map[measure]*rest.Config{kubectlLatency: user, controllerLatency: controller} {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			stop()
			return nil, fmt.Errorf("client of %s: %w", name, err)
		}
		o.done.Go(func() { o.measure(ctx, name, client, l.cluster.Server()) })
	}
	return o, nil
}

func (o *otherClients) measure(ctx context.Context, name measure, client *http.Client, server string) {
	for ctx.Err() == nil {
		began := time.Now()
		for !listsOne(ctx, client, server) && ctx.Err() == nil {
			time.Sleep(pause / 10)
		}
		o.mu.Lock()
		o.took[name] = append(o.took[name], time.Since(began).Seconds())
		o.mu.Unlock()
		time.Sleep(pause)
	}
}

func listsOne(ctx context.Context, client *http.Client, server string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/services?limit=1", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// end stops the clients and returns the 99th percentiles of their response times.
func (o *otherClients) end() map[measure]float64 {
	o.stop()
	o.done.Wait()
	p99 := map[measure]float64{}
	for name, took := range o.took {
		slices.Sort(took)
		p99[name] = took[len(took)*99/100]
	}
	return p99
}
