package config

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// value reads and writes one field of a Config.
type value struct {
	// set stores a decoded TOML value: string, int64, bool, []any, and so on. Relative paths are relative to dir.
	// After an error, the field is unchanged.
	set func(v any, dir string) error
	// get returns the field as a string, int64, bool or []string.
	get func() any
	// limits describes the allowed values as text, or is "" if every value of the type is allowed.
	limits string
}

func required(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}

// as returns v as a T, or an error that names the expected type and the actual type.
func as[T any](v any, want string) (T, error) {
	t, ok := v.(T)
	if !ok {
		return t, fmt.Errorf("must be %s, not %s", want, typeName(v))
	}
	return t, nil
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	case time.Time:
		return "a date"
	}
	return fmt.Sprintf("%T", v)
}

func str(p *string, check func(string) error) value {
	return value{
		set: func(v any, _ string) error {
			s, err := as[string](v, "a string")
			if err == nil {
				err = check(s)
			}
			if err == nil {
				*p = s
			}
			return err
		},
		get: func() any { return *p },
	}
}

func path(p *string, checks ...func(string) error) value {
	return value{
		set: func(v any, dir string) error {
			s, err := as[string](v, "a string")
			for _, check := range checks {
				if err == nil {
					err = check(s)
				}
			}
			if err == nil {
				*p = resolve(dir, s)
			}
			return err
		},
		get: func() any { return *p },
	}
}

func resolve(dir, p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(dir, p)
}

func boolean(p *bool) value {
	return value{
		set: func(v any, _ string) error {
			b, err := as[bool](v, "true or false")
			if err == nil {
				*p = b
			}
			return err
		},
		get: func() any { return *p },
	}
}

func integer(p *int, low, high int64) value {
	limits := fmt.Sprintf("%d to %d", low, high)
	return value{
		set: func(v any, _ string) error {
			n, err := as[int64](v, "an integer")
			if err != nil {
				return err
			}
			if n < low || n > high {
				return fmt.Errorf("%d is out of range (%s)", n, limits)
			}
			*p = int(n)
			return nil
		},
		get:    func() any { return int64(*p) },
		limits: limits,
	}
}

func duration(p *time.Duration, low, high time.Duration) value {
	limits := fmt.Sprintf("%s to %s", short(low), short(high))
	return value{
		set: func(v any, _ string) error {
			s, err := as[string](v, `a string with a unit, as in "30s" or "1h30m"`)
			if err != nil {
				return err
			}
			d, err := time.ParseDuration(s)
			if err != nil {
				return fmt.Errorf(`%q is not a duration, as in "30s" or "1h30m"`, s)
			}
			if d < low || d > high {
				return fmt.Errorf("%s is out of range (%s)", s, limits)
			}
			*p = d
			return nil
		},
		get:    func() any { return short(*p) },
		limits: limits,
	}
}

// short formats a duration without the zero units that time.Duration.String adds: "1h", not "1h0m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func oneOf[T ~string](p *T, allowed ...T) value {
	quoted := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	limits := orList(quoted)
	return value{
		set: func(v any, _ string) error {
			s, err := as[string](v, "a string")
			if err != nil {
				return err
			}
			if !slices.Contains(allowed, T(s)) {
				return fmt.Errorf("%q is not allowed (%s)", s, limits)
			}
			*p = T(s)
			return nil
		},
		get:    func() any { return string(*p) },
		limits: limits,
	}
}

// orList joins the items with commas and a final "or".
func orList(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " or " + items[last]
}

// list returns a value for an array of strings. parse converts each string. The value keeps the order of the strings
// and rejects repeated elements.
func list[T comparable](p *[]T, parse func(string) (T, error)) value {
	return value{
		set: func(v any, _ string) error {
			texts, err := stringArray(v)
			if err != nil {
				return err
			}
			var all []T
			for _, s := range texts {
				t, err := parse(s)
				if err != nil {
					return err
				}
				if slices.Contains(all, t) {
					return fmt.Errorf("%q is a duplicate", s)
				}
				all = append(all, t)
			}
			*p = all
			return nil
		},
		get: func() any { return texts(*p) },
	}
}

func texts[T any](all []T) []string {
	out := make([]string, len(all))
	for i, t := range all {
		out[i] = fmt.Sprint(t)
	}
	return out
}

func stringArray(v any) ([]string, error) {
	array, err := as[[]any](v, "an array of strings")
	if err != nil {
		return nil, err
	}
	out := make([]string, len(array))
	for i, e := range array {
		s, ok := e.(string)
		if !ok {
			return nil, fmt.Errorf("must be an array of strings, but element %d is %s", i+1, typeName(e))
		}
		out[i] = s
	}
	return out, nil
}

func paths(p *[]string) value {
	inner := list(p, func(s string) (string, error) { return s, required(s) })
	set := inner.set
	inner.set = func(v any, dir string) error {
		if err := set(v, dir); err != nil {
			return err
		}
		for i, s := range *p {
			(*p)[i] = resolve(dir, s)
		}
		return nil
	}
	return inner
}

func logLevel(p *slog.Level) value {
	name := strings.ToLower(p.String())
	inner := oneOf(&name, "debug", "info", "warn", "error")
	set := inner.set
	inner.set = func(v any, dir string) error {
		if err := set(v, dir); err != nil {
			return err
		}
		return p.UnmarshalText([]byte(name))
	}
	inner.get = func() any { return strings.ToLower(p.String()) }
	return inner
}
