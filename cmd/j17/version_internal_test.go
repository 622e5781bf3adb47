package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestVersion looks at what programs say that were built in a clone, outside of one, and by 'make dist'.
func TestVersion(t *testing.T) {
	program := "j17 0.1.0 (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	clone := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.modified", Value: modified},
		}
	}
	for _, c := range []struct {
		linked   string
		settings []debug.BuildSetting
		want     string
	}{
		{"", nil, program + ")"},
		{"", clone("false"), program + ", commit 0123456789ab)"},
		{"", clone("true"), program + ", commit 0123456789ab with changes)"},
		{"fedcba9876543210", nil, program + ", commit fedcba987654)"},
		{"fedcba9876543210+modified", clone("false"), program + ", commit fedcba987654 with changes)"},
	} {
		revision = c.linked
		if got := versionOf(c.settings).String(); got != c.want {
			t.Errorf("%q and %v: %s, want %s", c.linked, c.settings, got, c.want)
		}
	}
	revision = ""
}
