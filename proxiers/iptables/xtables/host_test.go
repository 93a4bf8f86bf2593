package xtables

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"edgeway/proxiers/plan"
)

func testTools(t testing.TB, v Variant, f plan.Family) *Tools {
	t.Helper()
	tools, err := Open(t.Context(), v, f)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func write(table, name string, rules ...string) []byte {
	in := NewInput()
	in.Write(Chain{ChainID{table, name}, rules})
	return in.Bytes()
}

func registeredTables(t testing.TB) (all []string) {
	t.Helper()
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		names, err := Tables(Legacy, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all = append(all, fmt.Sprint(f, " ", name))
		}
	}
	slices.Sort(all)
	return all
}

func script(t testing.TB, text string) (path string) {
	t.Helper()
	path = t.TempDir() + "/program"
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
