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
	// set stores a decoded TOML value: string, int64, bool, []any, and so on. set resolves relative paths against dir.
	// If set returns an error, the field keeps its value.
	set func(v any, dir string) error
	// get returns the field as a string, int64, bool or []string.
	get func() any
	// limits describes the allowed values as text, or is "" if the field accepts every value of its type.
	limits string
}

func optional(string) error { return nil }

func required(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}

// convert converts v to type T, or returns an error that names the expected type and the actual type.
func convert[T any](v any, want string) (T, error) {
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

// scalar returns a value for the field that p points to. R is the type of the field in TOML, and want is the name of R
// in error messages.
func scalar[R, T any](p *T, want string, parse func(R) (T, error), show func(T) any) value {
	return value{
		set: func(v any, _ string) error {
			raw, err := convert[R](v, want)
			if err != nil {
				return err
			}
			parsed, err := parse(raw)
			if err == nil {
				*p = parsed
			}
			return err
		},
		get: func() any { return show(*p) },
	}
}

func asIs[T any](v T) any { return v }

func str(p *string, check func(string) error) value {
	return scalar(p, "a string", func(s string) (string, error) { return s, check(s) }, asIs)
}

func path(p *string, check func(string) error) value {
	v := str(p, check)
	set := v.set
	v.set = func(text any, dir string) error {
		err := set(text, dir)
		if err == nil {
			*p = resolve(dir, *p)
		}
		return err
	}
	return v
}

func resolve(dir, p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(dir, p)
}

func boolean(p *bool) value {
	return scalar(p, "true or false", func(b bool) (bool, error) { return b, nil }, asIs)
}

func integer(p *int, low, high int64) value {
	limits := fmt.Sprintf("%d to %d", low, high)
	v := scalar(p, "an integer", func(n int64) (int, error) {
		if n < low || n > high {
			return 0, fmt.Errorf("%d is out of range (%s)", n, limits)
		}
		return int(n), nil
	}, func(n int) any { return int64(n) })
	v.limits = limits
	return v
}

func duration(p *time.Duration, low, high time.Duration) value {
	limits := fmt.Sprintf("%s to %s", formatDuration(low), formatDuration(high))
	v := scalar(p, `a string with a unit, as in "30s" or "1h30m"`, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			return 0, fmt.Errorf(`%q is not a duration, as in "30s" or "1h30m"`, s)
		case d < low || d > high:
			return 0, fmt.Errorf("%s is out of range (%s)", s, limits)
		}
		return d, nil
	}, func(d time.Duration) any { return formatDuration(d) })
	v.limits = limits
	return v
}

// formatDuration formats a duration without the zero units that time.Duration.String adds: "1h", not "1h0m0s".
func formatDuration(d time.Duration) string {
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
	limits := joinOr(quoted)
	v := scalar(p, "a string", func(s string) (T, error) {
		if !slices.Contains(allowed, T(s)) {
			return "", fmt.Errorf("%q is not allowed (%s)", s, limits)
		}
		return T(s), nil
	}, func(t T) any { return string(t) })
	v.limits = limits
	return v
}

// joinOr joins the items with commas and a final "or".
func joinOr(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " or " + items[last]
}

// list returns a value for an array of strings. parse converts each string. The value keeps the order of the strings
// and rejects repeated elements.
func list[T comparable](p *[]T, parse func(string) (T, error)) value {
	return scalar(p, "an array of strings", func(array []any) ([]T, error) {
		var all []T
		for i, e := range array {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("must be an array of strings, but element %d is %s", i+1, typeName(e))
			}
			t, err := parse(s)
			if err != nil {
				return nil, err
			}
			if slices.Contains(all, t) {
				return nil, fmt.Errorf("%q is a duplicate", s)
			}
			all = append(all, t)
		}
		return all, nil
	}, func(all []T) any { return texts(all) })
}

func texts[T any](all []T) []string {
	out := make([]string, len(all))
	for i, t := range all {
		out[i] = fmt.Sprint(t)
	}
	return out
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
