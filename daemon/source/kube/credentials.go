package kube

import (
	"context"
	"maps"
	"time"

	"edgeway/proxiers/messageid"
)

// credentialPoll is the time between two readings of the kubeconfig and of the files that it names. A fault counts when
// two readings in a row find it: the first one may have found a file that was half-written.
const credentialPoll = 5 * time.Second

// Concern is something about the credentials that an operator should change. The Services are served nevertheless.
type Concern struct {
	// Name is one of kubeconfig-refused, credential-expiry and kubeconfig-insecure.
	Name  string
	Since time.Time // zero: unknown
	// Message is a plain sentence that says what to do.
	Message string
	fault   string // for the log
}

// credentials are the kubeconfig in force, and the state of the one on disk.
type credentials struct {
	access *access
	// fault is why the kubeconfig on disk is not in force.
	fault  string
	since  time.Time
	faults int // readings in a row that found the fault
}

// Concerns gives what is wrong with the credentials now, the worst first.
func (s *Source) Concerns() []Concern {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.credentials
	var out []Concern
	if c.faults > 1 {
		out = append(out, Concern{
			Name: "kubeconfig-refused", Since: c.since, fault: c.fault,
			Message: "The new kubeconfig cannot be used, the previous one stays in force: " + c.fault +
				". Correct it, no restart is needed",
		})
	}
	if expiring := expiryWarnings(c.access.expiries, s.options.Kubeconfig, time.Now()); len(expiring) > 0 {
		out = append(out, Concern{Name: "credential-expiry", Message: joined(expiring)})
	}
	if len(c.access.insecure) > 0 {
		out = append(out, Concern{Name: "kubeconfig-insecure", Message: joined(c.access.insecure)})
	}
	return out
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
	logged := map[string]string{}
	for {
		s.logConcerns(logged)
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
	if c.fault != err.Error() {
		c.fault, c.faults, c.since = err.Error(), 0, time.Now()
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

// logConcerns logs each concern that is not in logged, and replaces logged by those of now.
func (s *Source) logConcerns(logged map[string]string) {
	concerns := map[string]string{}
	for _, c := range s.Concerns() {
		concerns[c.Name] = c.Message
		if logged[c.Name] == c.Message {
			continue
		}
		switch c.Name {
		case "kubeconfig-refused":
			s.log.Error("new kubeconfig cannot be used, the previous one stays in force",
				"message_id", messageid.KubeconfigUnusable, "error", c.fault)
		case "credential-expiry":
			s.log.Warn("credential of the API server expires", "message_id", messageid.CredentialExpires,
				"error", c.Message)
		default:
			s.log.Warn("kubeconfig is not secure", "message_id", messageid.KubeconfigInsecure, "error", c.Message)
		}
	}
	clear(logged)
	maps.Copy(logged, concerns)
}
