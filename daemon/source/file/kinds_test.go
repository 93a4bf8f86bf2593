package file

import "testing"

// KEP-4963 proposes the field spec.trafficHint, which API servers do not support yet.
func TestTrafficHint(t *testing.T) {
	f := newManifestDir(t)
	f.write("web.yaml", web+"  trafficHint: LongLived\n")
	f.read()
	if s := f.sink.service("web"); s == nil || !s.LongLived || len(s.Faults) > 0 || len(s.Ports) != 1 {
		t.Errorf("%+v", s)
	}
	f.write("web.yaml", web+"  trafficHint: Short\n")
	f.read()
	if s := f.sink.service("web"); s == nil || s.LongLived || len(s.Faults) != 1 ||
		s.Faults[0].Field != "spec.trafficHint" {
		t.Errorf("%+v", s)
	}
}

// kubectl reads YAML 1.1.
func TestScalarsParseAsInKubectl(t *testing.T) {
	for text, want := range map[string]string{
		"a: yes\nb: Off\nc: 'yes'\nd: \"no\"":       `{"a":true,"b":false,"c":"yes","d":"no"}`,
		"a: 2026-01-02\nb: 2026-01-02T03:04:05Z":    `{"a":"2026-01-02","b":"2026-01-02T03:04:05Z"}`,
		"1: a\n1.5: b\ntrue: c\nno: d":              `{"1":"a","1.5":"b","false":"d","true":"c"}`,
		"a: 010\nb: 0x10\nc: ~\nd: 1e3\ne: !!str 1": `{"a":8,"b":16,"c":null,"d":1000,"e":"1"}`,
		"x: &x {a: 1, b: 2}\nz: {<<: *x, b: 3}":     `{"x":{"a":1,"b":2},"z":{"a":1,"b":3}}`,
		"a: !!binary aGk=":                          `{"a":"hi"}`,
	} {
		if got, err := toJSON([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
}
