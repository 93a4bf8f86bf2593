package tracker

// Changes counts the changes to merged objects.
type Changes struct {
	// Total counts the changes since the start, and Pending the changes since the last snapshot.
	Total, Pending uint64
}

func (c *Changes) add() { c.Total++; c.Pending++ }

// LayerStats describes one layer.
type LayerStats struct {
	Name    string
	Synced  bool
	Objects map[string]int // by kind
}

// Stats counts objects and changes for the metrics.
type Stats struct {
	// Layers is sorted in descending order of priority.
	Layers []LayerStats
	// Services and Endpoints count the changes to Services and EndpointSlices.
	Services, Endpoints Changes
}

// Stats returns the current Stats. Stats visits all objects, so callers must not call it after every change.
func (t *Tracker) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := Stats{Services: t.view.services, Endpoints: t.view.endpoints}
	for _, l := range t.layers {
		ls := LayerStats{Name: l.name, Synced: l.synced, Objects: map[string]int{}}
		for key := range l.objects {
			ls.Objects[key.Kind]++
		}
		stats.Layers = append(stats.Layers, ls)
	}
	return stats
}
