package flowtable

import (
	"slices"
	"strings"

	"edgeway/proxiers/plan"
)

// wanted gives the devices that the options want, by index, or none while it waits. From Linux 6.16 on a flowtable has devices
// by name.
func (f *follower) wanted() (map[int]string, error) {
	if f.waiting {
		return map[int]string{}, nil
	}
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
