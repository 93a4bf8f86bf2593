package kube

import (
	"cmp"
	"context"
	"time"

	"edgeway/proxiers/fault"
)

// credentialPeriod is the time between two reads of the kubeconfig and of the files that it names. Edgeway reports a
// fault only if two consecutive reads find it, because a single read may find a half-written file.
const credentialPeriod = 5 * time.Second

// Faults and Warnings return faults with these IDs.
const (
	refusedID  = "kubeconfig-refused"
	expiryID   = "credential-expiry"
	insecureID = "kubeconfig-insecure"
	RangesID   = "service-ranges"
)

// serviceCIDRs is the resource that defines the ranges of Service addresses. Kubernetes before 1.33 has no
// ServiceCIDRs.
const serviceCIDRs = "servicecidrs"

// kubeconfigObject returns the name that identifies a kubeconfig in faults.
func kubeconfigObject(path string) string { return "kubeconfig " + path }

// credentials holds the kubeconfig in use, and the fault, if any, in the kubeconfig on disk.
type credentials struct {
	access *access
	// fault explains why Edgeway does not use the kubeconfig on disk.
	fault  error
	since  time.Time
	faults int // the number of consecutive reads that found the fault
}

// Faults returns the current faults in the credentials, including missing permissions. Every fault has the severity
// Warning, because Edgeway still serves the known Services.
func (s *Source) Faults() (out []fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.credentials
	if c.faults > 1 {
		out = append(out, fault.Fault{
			ID: refusedID, Severity: fault.Warning, Since: c.since,
			Fix:     cmp.Or(Advice(c.fault), "edgeway config check"),
			Message: "The new kubeconfig is unusable, so the previous one stays in force: " + c.fault.Error(),
		})
	}
	out = append(out, expiryFaults(c.access.expiries, s.options.Kubeconfig, time.Now())...)
	out = append(out, c.access.insecure...)
	for i := range out {
		out[i].Severity = fault.Warning
	}
	for _, f := range s.feeds {
		if _, found := f.health.get(); f.resource == serviceCIDRs && found.forbidden {
			out = append(out, rangesFault(found))
		}
	}
	return out
}

func rangesFault(f failure) fault.Fault {
	return fault.New(RangesID, fault.Warning, f.Fix, "The ranges of Service addresses are unknown: %s", f.Message)
}

// Warnings returns the faults that do not make a kubeconfig unusable, or an error if the kubeconfig is unusable.
func Warnings(kubeconfig string, allowExec bool) ([]fault.Fault, error) {
	a, err := loadKubeconfig(kubeconfig, allowExec)
	if err != nil {
		return nil, err
	}
	return append(a.insecure, expiryFaults(a.expiries, kubeconfig, time.Now())...), nil
}

// Expiries returns the validity period of each credential that expires, keyed by "ca", "client-certificate" or "token".
// The expiry of credentials from an exec plugin is unknown.
func (s *Source) Expiries() map[string]Expiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credentials.access.expiries
}

// poll reads the kubeconfig periodically until ctx is done. When the content changes, poll sends a new client to
// s.newClients.
func (s *Source) poll(ctx context.Context) {
	for sleep(ctx, credentialPeriod) == nil {
		if next := s.reload(); next != nil {
			select {
			case s.newClients <- next:
			case <-ctx.Done():
				return
			}
		}
	}
}

// reload reads the kubeconfig and the files that it names, and returns a new client if the content has changed, or nil
// otherwise. reload ignores changes to the token file, because client-go reads that file every minute.
func (s *Source) reload() (next *client) {
	access, err := s.load()
	if err == nil && access.digest != s.client.Load().digest {
		if next, err = newClient(access.config, s.dialer); err == nil {
			next.digest = access.digest
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.credentials = credentials{access: access}
		return next
	}
	c := &s.credentials
	if c.fault == nil || c.fault.Error() != err.Error() {
		c.fault, c.faults, c.since = err, 0, time.Now()
	}
	c.faults++
	return nil
}

// load reads the kubeconfig according to the Source's options. If load fails, the returned access is incomplete, but
// still lists the files.
func (s *Source) load() (*access, error) {
	a, err := loadKubeconfig(s.options.Kubeconfig, s.options.AllowExecPlugins)
	if err == nil && s.options.UserAgent != "" {
		a.config.UserAgent = s.options.UserAgent
	}
	return a, err
}
