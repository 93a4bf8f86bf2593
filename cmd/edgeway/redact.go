package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/files"
)

const redacted = "REDACTED"

// minSecretLength is the minimum length, in bytes, of the secrets that the redactor searches for. Shorter strings are
// too common in ordinary text.
const minSecretLength = 4

// secretKey matches a key, such as "password", whose value is a secret, but does not match the same word at the end of
// a path. quotedValue matches a quoted value. The quotes may be escaped, because the text may itself be quoted.
const (
	secretKey = `(?im)((?:^|[^\w/.-])[\w.-]*(?:token|passw(?:or)?d|passphrase|secret|` +
		`api[-_]?key|private[-_]?key|client-key-data|authorization)\\*["']?`
	quotedValue = `"(?:[^"\\]|\\.)*"?|\\+"[^"]*"?|'[^']*'?`
)

// assignments match a secret value together with the key that precedes it. After a colon, a value without quotes
// extends to the end of its line, as in YAML. After "=", the value extends to the end of its word, as in flags, query
// strings and log lines.
var assignments = []*regexp.Regexp{
	regexp.MustCompile(secretKey + `\s*:\s*)([|>][-+]?\s*\S+|` + quotedValue + `|[^\s"'\\][^\n"',;}\])]*)`),
	regexp.MustCompile(secretKey + `\s*=\s*)(` + quotedValue + `|[^\s"'\\,;&}\])]+)`),
}

// patterns match secrets by their format, because some secrets, such as an old token, are no longer in any file.
var patterns = []struct {
	secret *regexp.Regexp
	with   string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), redacted},
	{regexp.MustCompile(`LS0tLS1CRUdJTi[\w+/=-]*`), redacted}, // matches base64-encoded PEM
	{regexp.MustCompile(`eyJ[\w-]+\.[\w.=-]*`), redacted},     // matches a JWT
	{regexp.MustCompile(`\$2[abxy]?\$\d\d\$[./A-Za-z0-9]+`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer(?:\s+token)?|basic)[\s:=]+\\*["']?[^\s"'\\]+`), "$1 " + redacted},
	{regexp.MustCompile(`://[^\s"'<>]*@`), "://" + redacted + "@"},
	{regexp.MustCompile(`(invalid port )\\*"[^"]*"`), "${1}" + redacted}, // matches a password up to a slash
}

// environmentValue and urlPassword match secrets in a kubeconfig: an exec plugin's environment variables, and passwords
// in URLs. secretFile matches the path of a file that holds a secret.
var (
	environmentValue = regexp.MustCompile(`\bvalue["']?:\s*["']?([^\s"',}]{8,})`) // shorter values are not secrets
	urlPassword      = regexp.MustCompile(`://[^\s"'<>:@]*:([^\s"'<>]*)@`)
	secretFile       = regexp.MustCompile(`\b(?:tokenFile|client-key)["']?:\s*["']?([^\s"',}]+)`)
)

type redactor struct{ known *strings.Replacer }

// newRedactor returns a redactor for three kinds of secrets: secrets in a known format, secrets in the kubeconfigs,
// and secrets in the files that the kubeconfigs name. The kubeconfigs may be invalid.
func newRedactor(kubeconfigs ...string) redactor {
	forms := map[string]bool{}
	for _, path := range kubeconfigs {
		raw, _ := files.Read(path, files.SmallLimit) // without this file, the redactor still knows the other secrets
		for _, secret := range append(slices.Clone(assignments), environmentValue, urlPassword) {
			for _, found := range secret.FindAllStringSubmatch(string(raw), -1) {
				addForms(forms, found[len(found)-1])
			}
		}
		for _, found := range secretFile.FindAllStringSubmatch(string(raw), -1) {
			name := found[1]
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(path), name)
			}
			content, _ := files.Read(name, files.SmallLimit)
			addForms(forms, string(content))
		}
	}
	byLength := func(a, b string) int { return cmp.Compare(len(b), len(a)) } // a secret may contain another secret
	var pairs []string
	for _, form := range slices.SortedFunc(maps.Keys(forms), byLength) {
		pairs = append(pairs, form, redacted)
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// addForms adds the forms in which a YAML value, or one of its lines, can occur in the text to redact.
func addForms(forms map[string]bool, value string) {
	plain, _, _ := strings.Cut(value, " #") // removes a YAML comment
	plain = strings.Trim(plain, ` "'`)
	var unquoted string
	_ = json.Unmarshal([]byte(value), &unquoted)
	decoded, _ := base64.StdEncoding.DecodeString(plain)
	lines := strings.Split(value+"\n"+string(decoded), "\n")
	for _, s := range append(lines, plain, unquoted) {
		if s = strings.TrimSpace(s); len(s) < minSecretLength || strings.HasPrefix(s, "-----") {
			continue // the key is between the lines that begin with -----
		}
		forms[base64.StdEncoding.EncodeToString([]byte(s))] = true
		for _, form := range []string{s, inJSON(s), strconv.Quote(s)} {
			form = strings.Trim(form, `"`)
			for _, again := range []string{form, inJSON(form), strconv.Quote(form)} { // log lines contain quoted JSON
				forms[strings.Trim(again, `"`)] = true
			}
		}
	}
}

func inJSON(s string) string {
	out, _ := json.Marshal(s) // json.Marshal never fails for a string
	return string(out)
}

var stringInJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// redactJSON redacts the secrets in the strings of JSON text, and returns valid JSON.
func (r redactor) redactJSON(text string) string {
	return stringInJSON.ReplaceAllStringFunc(text, func(quoted string) string {
		var s string
		_ = json.Unmarshal([]byte(quoted), &s) // Unmarshal never fails, because json.Marshal wrote the text
		return inJSON(r.redact(s))
	})
}

func (r redactor) redact(text string) string {
	text = r.known.Replace(text)
	for _, p := range patterns {
		text = p.secret.ReplaceAllString(text, p.with)
	}
	for _, assignment := range assignments {
		text = assignment.ReplaceAllStringFunc(text, func(found string) string {
			m := assignment.FindStringSubmatch(found)
			quote := m[2][:len(m[2])-len(strings.TrimLeft(m[2], `\"'`))]
			return m[1] + quote + redacted + quote
		})
	}
	return text
}
