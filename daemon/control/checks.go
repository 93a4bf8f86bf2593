package control

import (
	"time"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/text"
)

// StatusChecks are the checks of endpoints.
type StatusChecks struct {
	// Endpoints is how many are checked, Dead how many of them do not answer.
	Endpoints int `json:"endpoints"`
	Dead      int `json:"dead"`
	// First are the first of the dead, at most 50.
	First []DeadEndpoint `json:"first"`
}

// DeadEndpoint is one that does not answer.
type DeadEndpoint struct {
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Err     string    `json:"error"`
}

// NewStatusChecks lists the dead of so many endpoints.
func NewStatusChecks(endpoints int, dead *endpointcheck.Dead) *StatusChecks {
	s := &StatusChecks{Endpoints: endpoints, Dead: dead.Len(), First: []DeadEndpoint{}}
	list := dead.List()
	for _, at := range list[:min(len(list), maxProblems)] {
		f := dead.Faults[at]
		s.First = append(s.First, DeadEndpoint{at.String(), f.Since, f.Message})
	}
	return s
}

func (s Status) checks(p *printer) {
	if s.Checks == nil {
		return
	}
	p.line("checks", "%s checked, %d without an answer", text.Count(s.Checks.Endpoints, "endpoint"), s.Checks.Dead)
	for _, d := range s.Checks.First {
		p.line("checks", "%s does not answer for %s: %s", d.Address, age(s.Time.Sub(d.Since)), d.Err)
	}
	if more := s.Checks.Dead - len(s.Checks.First); more > 0 {
		p.line("checks", "and %d more", more)
	}
}
