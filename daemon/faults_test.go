package daemon

import (
	"slices"
	"testing"

	"edgeway/daemon/config"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// The IDs of these faults are made of names, which a search of the source for constants does not find.
func TestFaultsOfSourcesAndFollowersHaveKnownIDs(t *testing.T) {
	ids := []string{"source-" + fileLayer, "source-" + kubeLayer}
	for _, f := range followers(config.Default(), proxiers.Component{}, shared{}) {
		ids = append(ids, "follower-"+f.Name)
	}
	for _, id := range ids {
		if !slices.Contains(fault.IDs(), id) {
			t.Errorf("fault.IDs lacks %s", id)
		}
	}
}
