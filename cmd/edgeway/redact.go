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

// minSecret is the least length of a secret that is searched for: shorter words stand in every text.
const minSecret = 4

// The key of a secret, which is not the end of a path, and its value in quotes. A text that quotes another one escapes
// the quotes.
const (
	secretKey = `(?im)((?:^|[^\w/.-])[\w.-]*(?:token|passw(?:or)?d|passphrase|secret|` +
		`api[-_]?key|private[-_]?key|client-key-data|authorization)\\*["']?`
	quotedValue = `"(?:[^"\\]|\\.)*"?|\\+"[^"]*"?|'[^']*'?`
)

// assignments match the key of a secret and its value. A value without quotes ends with its line after a colon, as in
// YAML, and with its word after "=", as in flags, query strings and log lines.
var assignments = []*regexp.Regexp{
	regexp.MustCompile(secretKey + `\s*:\s*)([|>][-+]?\s*\S+|` + quotedValue + `|[^\s"'\\][^\n"',;}\])]*)`),
	regexp.MustCompile(secretKey + `\s*=\s*)(` + quotedValue + `|[^\s"'\\,;&}\])]+)`),
}

// patterns match secrets that no file names any more, such as a token that was replaced, and what takes their place.
var patterns = []struct {
	secret *regexp.Regexp
	with   string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), redacted},
	{regexp.MustCompile(`LS0tLS1CRUdJTi[\w+/=-]*`), redacted}, // PEM in base64
	{regexp.MustCompile(`eyJ[\w-]+\.[\w.=-]*`), redacted},     // a JWT
	{regexp.MustCompile(`\$2[abxy]?\$\d\d\$[./A-Za-z0-9]+`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer(?:\s+token)?|basic)[\s:=]+\\*["']?[^\s"'\\]+`), "$1 " + redacted},
	{regexp.MustCompile(`://[^\s"'<>]*@`), "://" + redacted + "@"},
	{regexp.MustCompile(`(invalid port )\\*"[^"]*"`), "${1}" + redacted}, // a part of a password with a slash
}

// In a kubeconfig, the environment of an exec plugin and the passwords in URLs are secrets, too.
var (
	environment = regexp.MustCompile(`\bvalue["']?:\s*["']?([^\s"',}]{8,})`) // "true" is none
	urlPassword = regexp.MustCompile(`://[^\s"'<>:@]*:([^\s"'<>]*)@`)
	secretFile  = regexp.MustCompile(`\b(?:tokenFile|client-key)["']?:\s*["']?([^\s"',}]+)`)
)

// redactor replaces secrets in texts.
type redactor struct{ known *strings.Replacer }

// newRedactor returns a redactor that knows what secrets look like, and those of kubeconfigs and the files they name.
// A kubeconfig need not parse.
func newRedactor(kubeconfigs ...string) redactor {
	forms := map[string]bool{}
	for _, path := range kubeconfigs {
		raw, _ := files.Read(path, files.Small) // to know the other secrets is better than none
		for _, secret := range append(slices.Clone(assignments), environment, urlPassword) {
			for _, found := range secret.FindAllStringSubmatch(string(raw), -1) {
				addForms(forms, found[len(found)-1])
			}
		}
		for _, found := range secretFile.FindAllStringSubmatch(string(raw), -1) {
			name := found[1]
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(path), name)
			}
			content, _ := files.Read(name, files.Small)
			addForms(forms, string(content))
		}
	}
	byLength := func(a, b string) int { return cmp.Compare(len(b), len(a)) } // a secret may contain another one
	var pairs []string
	for _, form := range slices.SortedFunc(maps.Keys(forms), byLength) {
		pairs = append(pairs, form, redacted)
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// addForms adds the forms in which a value of YAML and its lines can stand in a text.
func addForms(forms map[string]bool, value string) {
	plain, _, _ := strings.Cut(value, " #") // a comment
	plain = strings.Trim(plain, ` "'`)
	var unquoted string
	_ = json.Unmarshal([]byte(value), &unquoted)
	decoded, _ := base64.StdEncoding.DecodeString(plain)
	lines := strings.Split(value+"\n"+string(decoded), "\n")
	for _, s := range append(lines, plain, unquoted) {
		if s = strings.TrimSpace(s); len(s) < minSecret || strings.HasPrefix(s, "-----") {
			continue // the lines between those that begin with ----- are the key
		}
		forms[base64.StdEncoding.EncodeToString([]byte(s))] = true
		for _, form := range []string{s, inJSON(s), strconv.Quote(s)} {
			form = strings.Trim(form, `"`)
			for _, again := range []string{form, inJSON(form), strconv.Quote(form)} { // a log line quotes JSON
				forms[strings.Trim(again, `"`)] = true
			}
		}
	}
}

func inJSON(s string) string {
	out, _ := json.Marshal(s) // of a string it never fails
	return string(out)
}

// stringInJSON matches a string with its quotes.
var stringInJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// redactJSON redacts the strings of a JSON text, which stays JSON.
func (r redactor) redactJSON(text string) string {
	return stringInJSON.ReplaceAllStringFunc(text, func(quoted string) string {
		var s string
		_ = json.Unmarshal([]byte(quoted), &s) // json.Marshal wrote it
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
