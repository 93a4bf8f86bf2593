package file

import "testing"

// KEP-4963 proposes the field; API servers do not have it yet.
func TestTrafficHint(t *testing.T) {
	f := newFolder(t)
	f.write("web.yaml", web+"  trafficHint: LongLived\n")
	f.read()
	if s := f.sink.service("web"); s == nil || !s.LongLived || len(s.Faults) > 0 || len(s.Ports) != 1 {
		t.Errorf("%+v", s)
	}
	f.write("web.yaml", web+"  trafficHint: Short\n")
	f.read()
	if s := f.sink.service("web"); s == nil || s.LongLived || len(s.Faults) != 1 || s.Faults[0].Field != "spec.trafficHint" {
		t.Errorf("%+v", s)
	}
}
