package config

import "edgeway/proxiers"

// Settings returns the values of a backend's own section, indexed by key, or nil if the section does not exist. The
// caller must not modify the map.
func (c *Config) Settings(section string) map[string]any {
	for _, own := range c.Sections {
		if own.Name == section {
			return own.Values
		}
	}
	return nil
}

func ownSections(c *Config) (out []section) {
	for _, own := range c.Sections {
		s := section{name: own.Name, doc: "Settings of the backend " + own.Name + "."}
		for _, setting := range own.Settings {
			s.keys = append(s.keys, key{setting.Name, setting.Doc, own.bind(setting)})
		}
		out = append(out, s)
	}
	return out
}

func (s Section) bind(setting proxiers.Setting) value {
	var v value
	switch current := s.Values[setting.Name].(type) {
	case bool:
		v = boolean(&current)
	case string:
		v = oneOf(&current, setting.Values...)
	}
	set := v.set
	v.set = func(raw any, dir string) error {
		err := set(raw, dir)
		s.Values[setting.Name] = v.get()
		return err
	}
	return v
}
