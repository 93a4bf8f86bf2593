package iptables

import (
	"context"

	"edgeway/proxiers"
)

// Name is the backend's name in the configuration where it is whichever variant the host uses. The names of the
// variants are made of it.
const Name = "iptables"

// Backends lists the backend under its three names.
func Backends() []proxiers.Backend {
	list := []proxiers.Backend{{
		Name: Name,
		Probe: func(ctx context.Context) error {
			v, err := findVariant(ctx, "")
			if err != nil {
				return err
			}
			return probe(ctx, v)
		},
		New: func(ctx context.Context, opts proxiers.Options) (proxiers.Proxier, error) {
			return open(ctx, "", opts)
		},
	}}
	for _, v := range variants {
		list = append(list, proxiers.Backend{
			Name:  v.backend(),
			Probe: func(ctx context.Context) error { return probe(ctx, v) },
			New: func(ctx context.Context, opts proxiers.Options) (proxiers.Proxier, error) {
				return open(ctx, v, opts)
			},
			Cleanup: func(ctx context.Context, opts proxiers.Options) error {
				return cleanupVariant(ctx, v, opts.Logger)
			},
		})
	}
	return list
}

// backend is the name of the backend that is this variant.
func (v variant) backend() string { return Name + "-" + string(v) }

func open(ctx context.Context, want variant, opts proxiers.Options) (proxiers.Proxier, error) {
	v, err := findVariant(ctx, want)
	if err != nil {
		return nil, err
	}
	return newProxier(ctx, v, opts)
}
