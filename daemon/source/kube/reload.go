package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"edgeway/proxiers/messageid"
)

// The times of reading the credentials again.
const (
	// credentialPoll finds what no event tells, and what expires.
	credentialPoll = 30 * time.Second
	// faultyPoll is the same while they cannot be used. A fault counts when it is there twice: the first time
	// the file may have been half-written.
	faultyPoll = 2 * time.Second
)

// Concern is something about the credentials that an operator should change. The Services are served nevertheless.
type Concern struct {
	// Name is one of kubeconfig-refused, credential-expiry and kubeconfig-insecure.
	Name  string
	Since time.Time // zero: unknown
	// Message is a plain sentence that says what to do.
	Message string
	fault   string // for the log
}

// credentials are those in force, and what is known about them.
type credentials struct {
	access *access
	// fault is why those that are now on disk are not in force.
	fault  string
	since  time.Time
	faults int    // readings in a row that found it
	files  []file // that the last reading opened, or could not open
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
			Message: "The new kubeconfig cannot be used, the previous one stays in force: " + c.fault + ". Correct it, no restart is needed",
		})
	}
	if text := expiryMessage(c.access.expiries, time.Now()); text != "" {
		out = append(out, Concern{Name: "credential-expiry", Message: text})
	}
	if len(c.access.insecure) > 0 {
		out = append(out, Concern{Name: "kubeconfig-insecure", Message: strings.Join(c.access.insecure, "; ")})
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

// Warnings gives what is dangerous about a kubeconfig, and what expires soon, in sentences. The error says why a
// daemon could not use it.
func Warnings(kubeconfig string, allowExec bool) ([]string, error) {
	a, err := loadKubeconfig(kubeconfig, allowExec)
	if text := expiryMessage(a.expiries, time.Now()); err == nil && text != "" {
		a.insecure = append(a.insecure, text)
	}
	return a.insecure, err
}

// follow puts new credentials in force until ctx ends.
func (s *Source) follow(ctx context.Context) {
	w := newFileWatch(s.options.NewWatcher, s.log)
	defer w.close()
	told := map[string]string{}
	for {
		w.add(s.credentialFiles()) // first: what changes during the reading is read again
		wait := credentialPoll
		if !s.reload() {
			wait = faultyPoll
		}
		s.tellConcerns(told)
		if !w.wait(ctx, wait, s.client.refused) {
			return
		}
	}
}

func (s *Source) credentialFiles() []file {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.credentials.access.files, s.credentials.files)
}

// reload reads the kubeconfig and what it names, and puts it in force if it is another than before. It reports
// whether it is usable.
func (s *Source) reload() bool {
	next, err := s.load()
	s.mu.Lock()
	changed := next.digest != s.credentials.access.digest
	s.mu.Unlock()
	if err == nil && changed {
		if err = s.client.use(next.config); err == nil {
			s.log.Info("new credentials in force", "message_id", messageid.CredentialsReplaced,
				"server", next.config.Host)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.credentials = credentials{access: next}
		return true
	}
	c := &s.credentials
	if c.fault != err.Error() {
		c.fault, c.faults, c.since = err.Error(), 0, time.Now()
	}
	c.faults, c.files = c.faults+1, next.files
	return false
}

// load reads what the options name. With an error the access has its files only.
func (s *Source) load() (*access, error) {
	a, err := loadKubeconfig(s.options.Kubeconfig, s.options.AllowExecPlugins)
	if err == nil && s.options.UserAgent != "" {
		a.config.UserAgent = s.options.UserAgent
	}
	return a, err
}

// tellConcerns logs each concern that is new.
func (s *Source) tellConcerns(told map[string]string) {
	now := map[string]string{}
	for _, c := range s.Concerns() {
		now[c.Name] = c.Message
		if told[c.Name] == c.Message {
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
	clear(told)
	maps.Copy(told, now)
}
