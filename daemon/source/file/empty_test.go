package file

import (
	"testing"

	"edgeway/proxiers/fault"
)

// An empty file or directory makes a read incomplete only if it held objects before.
func TestEmptyAtStart(t *testing.T) {
	f := newManifestDir(t)
	f.expect("")
	if faults := f.src.Faults(); len(faults) != 1 || faults[0].Severity != fault.Notice {
		t.Errorf("an empty directory: faults %v", faults)
	}
	if st := f.src.Status(); st.Fault.Message != "" || !st.Synced {
		t.Errorf("status %+v", st)
	}
	f.write("a.yaml", "")
	f.read()
	if faults := f.src.Faults(); len(faults) != 0 {
		t.Errorf("a directory with an empty file: faults %v", faults)
	}
	f.expect("")
	if st := f.src.Status(); st.Fault.Message != "" || !st.Synced {
		t.Errorf("status %+v", st)
	}
}
