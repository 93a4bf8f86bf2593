package edgeway_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the contents of the files with the given extensions, keyed by path.
func documents(t *testing.T, suffixes ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && strings.HasPrefix(d.Name(), ".") || path == "bin" || path == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(suffixes, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d documents: %v", len(texts), err)
	}
	return texts
}

var (
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	punctuation = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the anchors that GitHub generates for a document's headings.
func anchors(text string) []string {
	var out []string
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		name := punctuation.ReplaceAllString(strings.ToLower(h[1]), "")
		out = append(out, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return out
}

func TestDocumentLinksResolve(t *testing.T) {
	texts := documents(t, ".md")
	for name, text := range texts {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, anchor, hasAnchor := strings.Cut(found[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", name, found[1], err)
			} else if hasAnchor && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s: %s: no such heading", name, found[1])
			}
		}
	}
}

func TestReferencedDocumentsExist(t *testing.T) {
	var known []string
	for name := range documents(t, ".md") {
		known = append(known, filepath.Base(name))
	}
	pattern := regexp.MustCompile(`\b[\w-]+\.md\b`)
	for name, text := range documents(t, ".md", ".go", ".8", ".5", ".toml", ".yaml", ".catalog") {
		for _, word := range pattern.FindAllString(strings.ReplaceAll(text, `\-`, "-"), -1) {
			if !slices.Contains(known, word) && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s: no document %s", name, word)
			}
		}
	}
}

// configKeys returns the sections and the configuration keys in edgeway.toml, such as "proxy.backend". A test in
// daemon/config verifies that edgeway.toml is complete.
func configKeys(t *testing.T) map[string]bool {
	t.Helper()
	shipped, err := os.ReadFile("etc/edgeway/edgeway.toml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range regexp.MustCompile(`(?m)^#([\w.]+) = `).FindAllStringSubmatch(string(shipped), -1) {
		for key := k[1]; key != ""; key = key[:max(0, strings.LastIndexByte(key, '.'))] {
			known[key] = true
		}
	}
	return known
}

func TestDocumentsNameOnlyKnownKeys(t *testing.T) {
	known := configKeys(t)
	var tops []string
	for key := range known {
		if !strings.Contains(key, ".") {
			tops = append(tops, key)
		}
	}
	dotted := regexp.MustCompile(`\b(` + strings.Join(tops, "|") + `)(\.[a-z_]+)+\b`)
	isFile := regexp.MustCompile(`\.(md|conf|go|rs)$`)
	texts := documents(t, ".md", ".8", ".5")
	texts["alerts.yaml"] = documents(t, ".yaml")["etc/edgeway/examples/monitoring/alerts.yaml"]
	for name, text := range texts {
		if name == "CHANGELOG.md" || strings.HasPrefix(name, "test/bench/") { // these documents also name removed keys
			continue
		}
		words := append(dotted.FindAllString(text, -1), keysOfBlocks(text, known)...)
		for _, word := range words {
			if !known[word] && !isFile.MatchString(word) {
				t.Errorf("%s: no key %s", name, word)
			}
		}
	}
}

func keysOfBlocks(text string, known map[string]bool) (keys []string) {
	header := regexp.MustCompile(`^ *\[([a-z.]+)\]$`)
	setting := regexp.MustCompile(`^ *([a-z_]+) = `)
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch h, s := header.FindStringSubmatch(line), setting.FindStringSubmatch(line); {
		case h != nil && known[h[1]]:
			section = h[1] + "."
		case s != nil && section != "":
			keys = append(keys, section+s[1])
		case strings.TrimSpace(line) != "":
			section = ""
		}
	}
	return keys
}
