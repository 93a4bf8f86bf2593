package kube

import (
	"cmp"
	"context"
	"maps"
	"time"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// credentialPoll is the time between two readings of the kubeconfig and of the files that it names. A fault counts when
// two readings in a row find it: the first one may have found a file that was half-written.
const credentialPoll = 5 * time.Second

// The IDs of the faults of a kubeconfig.
const (
	refusedID  = "kubeconfig-refused"
	expiryID   = "credential-expiry"
	insecureID = "kubeconfig-insecure"
	RangesID   = "service-ranges"
)

// serviceCIDRs is the resource that the ranges of Service addresses come from. Kubernetes before 1.33 does not have it.
const serviceCIDRs = "servicecidrs"

// kubeconfigObject is what the faults of a kubeconfig are about.
func kubeconfigObject(path string) string { return "kubeconfig " + path }

// FaultIDs returns the IDs of the faults that Faults may return.
func FaultIDs() []string { return []string{refusedID, expiryID, insecureID, RangesID} }

// credentials are the kubeconfig in force, and the state of the one on disk.
type credentials struct {
	access *access
	// fault is why the kubeconfig on disk is not in force.
	fault  error
	since  time.Time
	faults int // readings in a row that found the fault
}

// Faults returns what is wrong with the credentials and their rights now. None is worse than a Warning, because the
// Services that are known are served.
func (s *Source) Faults() (out []fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.credentials
	if c.faults > 1 {
		out = append(out, fault.Fault{
			ID: refusedID, Severity: fault.Warning, Since: c.since,
			Fix:     cmp.Or(Advice(c.fault), "edgeway config check"),
			Message: "The new kubeconfig cannot be used, the previous one stays in force: " + c.fault.Error(),
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

// rangesFault returns the fault of credentials without the right to read ServiceCIDRs.
func rangesFault(f failure) fault.Fault {
	return fault.New(RangesID, fault.Warning, f.fix, "The ranges of Service addresses are not known: %s", f.text)
}

// Warnings returns what is wrong with a kubeconfig that can be used. With an error it returns what was found before.
func Warnings(kubeconfig string, allowExec bool) ([]fault.Fault, error) {
	a, err := loadKubeconfig(kubeconfig, allowExec)
	if err != nil {
		return a.insecure, err
	}
	return append(a.insecure, expiryFaults(a.expiries, kubeconfig, time.Now())...), nil
}

// Expiries gives the life of each credential that expires: "ca", "client-certificate", "token". What an exec
// plugin gets is not known.
func (s *Source) Expiries() map[string]Expiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credentials.access.expiries
}

// poll reads the kubeconfig again and again until ctx ends. It hands over a client for each one that differs.
func (s *Source) poll(ctx context.Context) {
	logged := map[string]bool{}
	for {
		s.logFaults(logged)
		if sleep(ctx, credentialPoll) != nil {
			return
		}
		if next := s.reload(); next != nil {
			select {
			case s.replaced <- next:
			case <-ctx.Done():
				return
			}
		}
	}
}

// reload reads the kubeconfig and the files that it names. It returns a client if they differ from those in force, and
// nil otherwise. Tokens in files of their own are left to client-go, which reads them every minute.
func (s *Source) reload() (next *client) {
	access, err := s.load()
	s.mu.Lock()
	changed := access.digest != s.credentials.access.digest
	s.mu.Unlock()
	if err == nil && changed {
		next, err = newClient(access.config, s.dialer)
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

// load reads what the options name. With an error the access has its files only.
func (s *Source) load() (*access, error) {
	a, err := loadKubeconfig(s.options.Kubeconfig, s.options.AllowExecPlugins)
	if err == nil && s.options.UserAgent != "" {
		a.config.UserAgent = s.options.UserAgent
	}
	return a, err
}

// logFaults logs each fault that is not in logged, and replaces logged by those of now.
func (s *Source) logFaults(logged map[string]bool) {
	now := map[string]bool{}
	for _, f := range s.Faults() {
		key := f.ID + f.Message
		now[key] = true
		if logged[key] {
			continue
		}
		switch f.ID {
		case refusedID:
			s.log.Error("new kubeconfig cannot be used", "message_id", messageid.KubeconfigUnusable, "error", f,
				"fix", f.Fix)
		case expiryID:
			s.log.Warn("credential of the API server expires", "message_id", messageid.CredentialExpires, "error", f,
				"fix", f.Fix)
		case RangesID:
			s.log.Warn("no permission to read ServiceCIDRs", "error", f, "fix", f.Fix)
		default:
			s.log.Warn("kubeconfig is not secure", "message_id", messageid.KubeconfigInsecure, "error", f, "fix", f.Fix)
		}
	}
	clear(logged)
	maps.Copy(logged, now)
}
