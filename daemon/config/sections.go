package config

import "slices"

// Settings returns the values of a backend's own section, indexed by key, or nil if the section does not exist.
func (c *Config) Settings(section string) map[string]any {
	i := slices.IndexFunc(c.Sections, func(s Section) bool { return s.Name == section })
	if i < 0 {
		return nil
	}
	values := map[string]any{}
	for _, s := range c.Sections[i].Settings {
		values[s.Name] = s.Value
	}
	return values
}

func ownSections(c *Config) (out []section) {
	for _, own := range c.Sections {
		s := section{name: own.Name, doc: "Settings of the backend " + own.Name + "."}
		for i := range own.Settings {
			k := &own.Settings[i]
			s.keys = append(s.keys, key{k.Name, k.Doc, own.Settings[i].bind()})
		}
		out = append(out, s)
	}
	return out
}

func (s *Setting) bind() value {
	set := func(bound value, current func() any) value {
		store := bound.set
		bound.set = func(v any, dir string) error {
			err := store(v, dir)
			s.Value = current()
			return err
		}
		return bound
	}
	if b, ok := s.Value.(bool); ok {
		return set(boolean(&b), func() any { return b })
	}
	t, _ := s.Value.(string)
	return set(oneOf(&t, s.Values...), func() any { return t })
}
