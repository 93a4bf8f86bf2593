package file

import (
	"bytes"
	"errors"
	"regexp"

	"go.yaml.in/yaml/v2"
)

var (
	errKey       = errors.New("a key is neither a word nor a number")
	errLongKey   = errors.New("a key has more than 512 characters")
	errDirective = errors.New("it has a %TAG directive: write the tags out")
)

// checkAliases refuses what a few characters of YAML can make large in the library (v2.4), which bounds how many values
// aliases stand for, not their size, and copies keys and tags into its errors and nodes.
func checkAliases(text []byte) error {
	if hasDirective(text) {
		return errDirective
	}
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	var all size
	return yaml.Unmarshal(text, &all)
}

// directive is at the beginning of a line, as YAML 1.1 knows lines.
var directive = regexp.MustCompile(`(^|[\n\r\x{85}\x{2028}\x{2029}])%TAG`)

func hasDirective(text []byte) bool {
	return bytes.Contains(text, []byte("%TAG")) && directive.Match(text) ||
		bytes.Contains(text, []byte("%\x00T\x00A\x00G")) // UTF-16, in either order
}

// size is how large a value is with its aliases replaced. The library calls UnmarshalYAML for each value that is not null.
type size int

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *size) UnmarshalYAML(unmarshal func(any) error) error {
	var (
		list   []size
		object map[key]size
		scalar string
	)
	err := unmarshal(&list)
	if isMismatch(err) {
		err = unmarshal(&object)
	}
	if isMismatch(err) {
		err = unmarshal(&scalar)
	}
	*s = size(len(scalar))
	for _, v := range list {
		*s += v
	}
	for k, v := range object {
		*s += size(len(k)) + v
	}
	if err == nil && *s > maxJSON {
		err = errGrowth
	}
	return err
}

// key is one of an object. The longest that an object of Kubernetes may have is that of an annotation, of 317.
type key string

// UnmarshalYAML implements yaml.Unmarshaler.
func (k *key) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	err := unmarshal(&text)
	switch *k = key(text); {
	case isMismatch(err):
		return errKey
	case err == nil && len(text) > 512:
		return errLongKey
	}
	return err
}

// isMismatch reports whether a value is of another type than was asked for.
func isMismatch(err error) bool {
	var mismatch *yaml.TypeError
	return errors.As(err, &mismatch)
}
