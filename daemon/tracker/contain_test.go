package tracker

import (
	"strings"
	"testing"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// evil is an object that causes a panic when the tracker merges it.
type evil struct{ *source.Service }

func (evil) Problems() []fault.Fault { panic("on purpose") }

// If merging an object panics, the tracker rejects the object, both in a primary layer and in the last-known layer. A
// fault names the object until the object changes.
func TestObjectWhoseMergePanicsIsRefused(t *testing.T) {
	for _, layer := range []string{"kube", "lastknown"} {
		t.Run(layer, func(t *testing.T) {
			tr, file, kube, known := threeLayers()
			file.Synced()
			sink := map[string]source.Sink{"kube": kube, "lastknown": known}[layer]
			sink.Upsert(svc("good"))
			sink.Upsert(evil{svc("bad")})
			sink.Synced()
			s := mustSnapshot(t, tr)
			wantNames(t, s, "bad[]", "good[]")
			if len(s.Problems) != 1 || s.Problems[0].Object.Name != "bad" || !strings.Contains(s.Problems[0].Message, "on purpose") {
				t.Errorf("problems %v", s.Problems)
			}
			sink.Upsert(evil{svc("good")})
			if s := mustSnapshot(t, tr); len(s.Problems) != 2 {
				t.Errorf("problems %v", s.Problems)
			}
			sink.Upsert(svc("bad"))
			sink.Upsert(svc("good"))
			if s := mustSnapshot(t, tr); len(s.Problems) != 0 {
				t.Errorf("problems %v after the object has changed", s.Problems)
			}
		})
	}
}
