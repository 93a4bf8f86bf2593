package lastknown

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/test/hostile"
)

func encode(t testing.TB, objects ...source.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	head := header{Format: snapshotFormat, Version: version, Cluster: Cluster{Server: "s"}, At: time.Unix(1, 0).UTC()}
	if _, err := encodeSnapshot(&out, head, objects); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func seal(lines []byte) []byte {
	snapshot := append(fmt.Appendf(nil, `{"format":%q,"version":1}`+"\n", snapshotFormat), lines...)
	if len(lines) > 0 && lines[len(lines)-1] != '\n' {
		snapshot = append(snapshot, '\n')
	}
	hash, n := sha256.Sum256(snapshot), bytes.Count(snapshot, []byte("\n"))-1
	return fmt.Appendf(snapshot, `{"objects":%d,"sha256":%q}`+"\n", n, hex.EncodeToString(hash[:]))
}

func parse(snapshot []byte) (*state, error) {
	d := newDecoder(nil)
	if err := d.readSnapshot(bytes.NewReader(snapshot)); err != nil {
		return nil, err
	}
	return d.result(), nil
}

// FuzzLastKnown reads arbitrary data as a snapshot, first unchanged and then between a valid header and footer. Reading
// must neither panic nor return an invalid object.
func FuzzLastKnown(f *testing.F) {
	good := encode(f, everyKind()...)
	f.Add(good)
	lines := bytes.SplitAfter(good, []byte("\n"))
	f.Add(bytes.Join(lines[1:len(lines)-2], nil))
	f.Add([]byte(`{"service":{"namespace":"a","name":"b","ports":[{"protocol":1,"port":0}],"faults":[{"object":"x"}]}}`))
	for _, text := range hostile.Objects(f) {
		var c convert.Converter
		var svc corev1.Service
		var slice discoveryv1.EndpointSlice
		_ = json.Unmarshal(text, &svc) // ignore fields of the wrong type
		_ = json.Unmarshal(text, &slice)
		var objects []source.Object
		if out, ok := c.Service(&svc); ok {
			objects = append(objects, out)
		}
		if out, ok := c.EndpointSlice(&slice); ok {
			objects = append(objects, out)
		}
		f.Add(encode(f, objects...))
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, snapshot := range [][]byte{data, seal(data)} {
			st, err := parse(snapshot)
			if err != nil {
				continue
			}
			for _, obj := range st.objects {
				if err := convert.Validate(obj); err != nil {
					t.Error(err)
				}
				for _, p := range obj.Problems() {
					_ = p.String()
				}
			}
		}
	})
}

// A later version of Edgeway may write more kinds of objects in the same format.
func TestUnknownKindsAreSkipped(t *testing.T) {
	st, err := parse(seal([]byte(
		`{"future":{"name":"x"}}` + "\n" + `{"service":{"namespace":"ns","name":"a","ports":[{"protocol":6,"port":80}]}}` + "\n")))
	if err != nil || len(st.objects) != 1 || st.invalid != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestInvalidObjectsAreLeftOut(t *testing.T) {
	st, err := parse(seal([]byte(
		`{"service":{"namespace":"ns","name":"a","ports":[{"protocol":6,"port":80}]}}` + "\n" +
			`{"service":{"namespace":"ns","name":"b","clusterIPs":["127.0.0.1"]}}` + "\n" +
			`{"serviceCIDR":{"name":"all","cidrs":["0.0.0.0/0"]}}` + "\n" +
			`{"endpointSlice":{"namespace":"ns","name":"c","service":"a; drop","family":4}}` + "\n")))
	if err != nil || len(st.objects) != 1 || st.invalid != 3 {
		t.Errorf("%+v, %v", st, err)
	}
}

func BenchmarkLoad(b *testing.B) {
	var objects []source.Object
	for i := range 10000 {
		objects = append(objects, aSlice(fmt.Sprintf("service-%05d", i), 5))
	}
	for i := range 10000 {
		objects = append(objects, aService(fmt.Sprintf("service-%05d", i), 80))
	}
	data := encode(b, objects...)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if st, err := parse(data); err != nil || len(st.objects) != len(objects) {
			b.Fatal(err)
		}
	}
}
