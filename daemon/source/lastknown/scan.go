package lastknown

import (
	"math"
	"net/netip"
	"strconv"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/proxiers/plan"
)

// scanner reads the lines that hold Services and EndpointSlices, which are nearly all, many times as fast as encoding/json: a
// host that boots without its API server waits for it. It takes only what encodeSnapshot writes, with the fields in that
// order, and nothing that encoding/json would read in another way. Faults and strings with escapes are left to that.
type scanner struct {
	converter *convert.Converter
	rest      []byte
	bad       bool // it is another text
	first     bool // the next field is the first one of its object

	// What a list is collected in, before there is one of its length.
	addrs     []netip.Addr
	prefixes  []netip.Prefix
	ports     []source.ServicePort
	weights   []source.Weight
	slice     []source.SlicePort
	endpoints []source.Endpoint
	names     []string
	// hints are those of the endpoint before that had some: the next one mostly has the same.
	hints *source.Hints
}

// object gives the object of a line, which shares its strings with others; ok is false for any other line.
func (s *scanner) object(line []byte) (obj source.Object, ok bool) {
	s.rest, s.bad, s.first = line, false, false
	s.open()
	switch {
	case s.field("service"):
		obj = s.service()
	case s.field("endpointSlice"):
		obj = s.endpointSlice()
	default:
		return nil, false
	}
	s.end()
	return obj, !s.bad && (len(s.rest) == 0 || string(s.rest) == "\n")
}

func (s *scanner) service() *source.Service {
	o := &source.Service{}
	s.open()
	read(s, "namespace", &o.Namespace, (*scanner).shared)
	read(s, "name", &o.Name, (*scanner).text)
	read(s, "uid", &o.UID, (*scanner).text)
	read(s, "created", &o.Created, (*scanner).time)
	readList(s, "clusterIPs", &o.ClusterIPs, &s.addrs, (*scanner).addr)
	readList(s, "externalIPs", &o.ExternalIPs, &s.addrs, (*scanner).addr)
	readList(s, "loadBalancerIPs", &o.LoadBalancerIPs, &s.addrs, (*scanner).addr)
	readList(s, "sourceRanges", &o.SourceRanges, &s.prefixes, (*scanner).prefix)
	readList(s, "ports", &o.Ports, &s.ports, (*scanner).servicePort)
	read(s, "affinity", &o.Affinity, (*scanner).duration)
	read(s, "internalLocal", &o.InternalLocal, (*scanner).flag)
	read(s, "externalLocal", &o.ExternalLocal, (*scanner).flag)
	read(s, "healthCheckNodePort", &o.HealthCheckNodePort, (*scanner).port)
	read(s, "longLived", &o.LongLived, (*scanner).flag)
	read(s, "scheduler", &o.Scheduler, (*scanner).shared)
	readList(s, "weights", &o.Weights, &s.weights, (*scanner).weight)
	s.end()
	return o
}

func (s *scanner) servicePort() (p source.ServicePort) {
	s.open()
	read(s, "name", &p.Name, (*scanner).shared)
	read(s, "protocol", &p.Protocol, (*scanner).protocol)
	read(s, "port", &p.Port, (*scanner).port)
	read(s, "nodePort", &p.NodePort, (*scanner).port)
	s.end()
	return p
}

func (s *scanner) weight() (w source.Weight) {
	s.open()
	read(s, "node", &w.Node, (*scanner).shared)
	read(s, "range", &w.Range, (*scanner).prefix)
	read(s, "weight", &w.Weight, (*scanner).port)
	s.end()
	return w
}

func (s *scanner) endpointSlice() *source.EndpointSlice {
	o := &source.EndpointSlice{}
	s.open()
	read(s, "namespace", &o.Namespace, (*scanner).shared)
	read(s, "name", &o.Name, (*scanner).text)
	read(s, "service", &o.Service, (*scanner).text)
	read(s, "family", &o.Family, (*scanner).family)
	readList(s, "ports", &o.Ports, &s.slice, (*scanner).slicePort)
	readList(s, "endpoints", &o.Endpoints, &s.endpoints, (*scanner).endpoint)
	read(s, "triggered", &o.Triggered, (*scanner).time)
	s.end()
	return o
}

func (s *scanner) slicePort() (p source.SlicePort) {
	s.open()
	read(s, "name", &p.Name, (*scanner).shared)
	read(s, "protocol", &p.Protocol, (*scanner).protocol)
	read(s, "port", &p.Port, (*scanner).port)
	s.end()
	return p
}

func (s *scanner) endpoint() (e source.Endpoint) {
	s.open()
	read(s, "addr", &e.Addr, (*scanner).addr)
	read(s, "ready", &e.Ready, (*scanner).flag)
	read(s, "serving", &e.Serving, (*scanner).flag)
	read(s, "terminating", &e.Terminating, (*scanner).flag)
	read(s, "nodeName", &e.NodeName, (*scanner).shared)
	var nodes, zones []string
	readList(s, "forNodes", &nodes, &s.names, (*scanner).shared)
	readList(s, "forZones", &zones, &s.names, (*scanner).shared)
	s.end()
	if nodes == nil && zones == nil {
		return e
	}
	if hints := (&source.Hints{ForNodes: nodes, ForZones: zones}); !hints.Equal(s.hints) {
		s.hints = hints
	}
	e.Hints = s.hints
	return e
}

// read takes a field if it is the next one.
func read[T any](s *scanner, name string, to *T, value func(*scanner) T) {
	if s.field(name) {
		*to = value(s)
	}
}

// readList is read for a list.
func readList[T any](s *scanner, name string, to, scratch *[]T, value func(*scanner) T) {
	if !s.field(name) {
		return
	}
	s.take('[')
	list := (*scratch)[:0]
	for !s.bad && !s.next(']') {
		if len(list) > 0 {
			s.take(',')
		}
		list = append(list, value(s))
	}
	s.bad = s.bad || len(list) == 0 // none is written as nothing
	*to, *scratch = append(make([]T, 0, len(list)), list...), list[:0]
}

func (s *scanner) open() {
	s.take('{')
	s.first = true
}

func (s *scanner) end() {
	s.take('}')
	s.first = false
}

// next takes a byte if it is the next one.
func (s *scanner) next(c byte) bool {
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) take(c byte) {
	if !s.next(c) {
		s.bad = true
	}
}

// field takes the name of a field, if it is the next one, with what is around it.
func (s *scanner) field(name string) bool {
	rest := s.rest
	if !s.first {
		if len(rest) == 0 || rest[0] != ',' {
			return false
		}
		rest = rest[1:]
	}
	n := len(name)
	if len(rest) < n+3 || rest[0] != '"' || string(rest[1:1+n]) != name || rest[1+n] != '"' || rest[2+n] != ':' {
		return false
	}
	s.rest, s.first = rest[n+3:], false
	return true
}

// raw takes a string of ASCII letters that stand for themselves.
func (s *scanner) raw() []byte {
	s.take('"')
	for i, c := range s.rest {
		switch {
		case c == '"':
			out := s.rest[:i]
			s.rest = s.rest[i+1:]
			return out
		case c < ' ' || c >= 0x7f || c == '\\':
			s.bad = true
			return nil
		}
	}
	s.bad = true
	return nil
}

func (s *scanner) text() string { return string(s.raw()) }

func (s *scanner) shared() string { return s.converter.ShareText(s.raw()) }

func (s *scanner) addr() netip.Addr {
	a, err := netip.ParseAddr(s.text())
	s.bad = s.bad || err != nil
	return a
}

func (s *scanner) prefix() netip.Prefix {
	p, err := netip.ParsePrefix(s.text())
	s.bad = s.bad || err != nil
	return p
}

func (s *scanner) time() (t time.Time) {
	err := t.UnmarshalText(s.raw())
	s.bad = s.bad || err != nil
	return t
}

func (s *scanner) flag() bool {
	word, value := "false", false
	if len(s.rest) > 0 && s.rest[0] == 't' {
		word, value = "true", true
	}
	if len(s.rest) < len(word) || string(s.rest[:len(word)]) != word {
		s.bad = true
		return false
	}
	s.rest = s.rest[len(word):]
	return value
}

// number takes digits, as JSON has them, of a number up to a limit.
func (s *scanner) number(limit uint64) uint64 {
	i := 0
	for i < len(s.rest) && s.rest[i] >= '0' && s.rest[i] <= '9' {
		i++
	}
	n, err := strconv.ParseUint(string(s.rest[:i]), 10, 64)
	s.bad = s.bad || err != nil || n > limit || i > 1 && s.rest[0] == '0'
	s.rest = s.rest[i:]
	return n
}

func (s *scanner) port() uint16 { return uint16(s.number(math.MaxUint16)) }

func (s *scanner) protocol() plan.Protocol { return plan.Protocol(s.number(math.MaxUint8)) }

func (s *scanner) family() plan.Family { return plan.Family(s.number(math.MaxUint8)) }

func (s *scanner) duration() time.Duration { return time.Duration(s.number(math.MaxInt64)) }
