package journal

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/config"
)

const root = "../.."

func read(t *testing.T, name ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.Join(name...)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCatalogExplainsEachMessageID(t *testing.T) {
	var explained, logged []string
	_, entries, _ := strings.Cut(read(t, "units", "edgeway.catalog"), "\n-- ")
	for entry := range strings.SplitSeq(entries, "\n-- ") {
		id, rest, _ := strings.Cut(entry, "\n")
		explained = append(explained, id)
		header, body, _ := strings.Cut(rest, "\n\n")
		if !strings.HasPrefix(header, "Subject: ") || len(strings.TrimSpace(body)) < 100 {
			t.Errorf("%s has no explanation: %q", id, rest)
		}
	}
	for _, m := range regexp.MustCompile(`= "([0-9a-f]{32})"`).FindAllStringSubmatch(read(t, "proxiers", "messageid",
		"messageid.go"), -1) {
		logged = append(logged, m[1])
	}
	slices.Sort(explained)
	slices.Sort(logged)
	if len(logged) == 0 || len(slices.Compact(slices.Clone(logged))) != len(logged) ||
		!slices.Equal(logged, explained) {
		t.Errorf("identifiers\n%q\nexplained in the catalog\n%q", logged, explained)
	}
}

func TestEachMessageIDIsLogged(t *testing.T) {
	var program strings.Builder
	for _, dir := range []string{"daemon", "proxiers"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				program.WriteString(read(t, strings.TrimPrefix(path, root)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	names := regexp.MustCompile(`(\w+) += "[0-9a-f]{32}"`).FindAllStringSubmatch(read(t, "proxiers", "messageid",
		"messageid.go"), -1)
	for _, name := range names {
		if !strings.Contains(program.String(), "messageid."+name[1]+",") {
			t.Errorf("no line has the identifier %s", name[1])
		}
	}
	if len(names) == 0 {
		t.Error("there are no identifiers")
	}
}

func TestCatalogNamesKnownKeys(t *testing.T) {
	known := map[string]bool{}
	section := ""
	for line := range strings.Lines(config.Dump(config.Default())) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			known[section] = true
		} else if key, _, ok := strings.Cut(line, " = "); ok {
			known[section+"."+key] = true
		}
	}
	named := 0
	key := regexp.MustCompile(`\b(node|source|proxy|conntrack|checks|routes|fastpath|health|metrics|log|control)(\.[a-z_]+)+`)
	for _, name := range key.FindAllString(read(t, "units", "edgeway.catalog"), -1) {
		named++
		if !known[name] {
			t.Errorf("the catalog names the key %s, which does not exist", name)
		}
	}
	if named == 0 {
		t.Error("the catalog names no key")
	}
}
