package flowtable

import (
	"slices"
	"strings"
	"time"

	"edgeway/proxiers/plan"
)

// wanted gives the devices that the options want, by index. From Linux 6.16 on a flowtable has devices by name.
func (f *follower) wanted() (map[int]string, error) {
	all, err := f.links.List()
	if err != nil {
		return nil, err
	}
	out := map[int]string{}
	for index, device := range all {
		if wants(f.opts, device.Name) {
			out[index] = device.Name
		}
	}
	return out, nil
}

// wants says that a device is among those of the options. A name that has a meaning to nft cannot be written.
func wants(opts Options, name string) bool {
	if strings.HasSuffix(name, "*") || plan.CheckInterface(name) != nil {
		return false
	}
	matches := func(pattern string) bool { return plan.MatchInterface(pattern, name) }
	return (len(opts.Devices) == 0 || slices.ContainsFunc(opts.Devices, matches)) && !slices.ContainsFunc(opts.Exclude, matches)
}

const (
	// settle is how long after an event it is acted on: several come together.
	settle = 100 * time.Millisecond
	// pause is the least time between two writings of the table that changes by other programs cause.
	pause = time.Second
	// retry is when is tried again what failed.
	retry = time.Second
)

// linksChanged has the devices looked at soon.
func (f *follower) linksChanged() {
	f.mu.Lock()
	known := !f.look.IsZero()
	if !known {
		f.look = time.Now().Add(settle)
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}
