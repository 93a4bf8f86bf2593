package lastknown

import (
	"time"

	"edgeway/daemon/source"
)

// Saved is what a state on disk says of itself.
type Saved struct {
	// Server is the URL of the API server that it is of; At is when that confirmed it last.
	Server string
	At     time.Time
	Held   []source.Holding // see Store.Held
}

// Peek hands the state in a directory over, once, and changes nothing on disk, whatever it finds there: a daemon may be
// running. It fails where there is no state, and where it cannot be used.
func Peek(dir string, sink source.Sink) (Saved, error) {
	st, err := readState(dir, nil)
	if err != nil {
		return Saved{}, err
	}
	for _, obj := range st.objects {
		sink.Upsert(obj)
	}
	sink.Synced()
	return Saved{st.server, st.at, st.held}, nil
}
