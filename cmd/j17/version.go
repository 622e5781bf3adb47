package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// programVersion is the version of this source.
const programVersion = "0.1.0"

// revision is the commit that the program is built from. 'make dist' sets it, which stamps nothing else of a clone into
// the program; the Go command knows it itself.
var revision string //nolint:gochecknoglobals // only a variable can be set by the linker

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// versionOf is the version of a program that was built with these settings.
func versionOf(settings []debug.BuildSetting) versionInfo {
	v := versionInfo{Version: programVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	v.Revision, v.Modified = strings.CutSuffix(revision, "+modified")
	for _, s := range settings {
		switch {
		case revision != "":
		case s.Key == "vcs.revision":
			v.Revision = s.Value
		case s.Key == "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String is the line that 'j17 version' prints.
func (v versionInfo) String() string {
	commit := ""
	if v.Revision != "" {
		commit = fmt.Sprintf(", commit %.12s", v.Revision)
	}
	if v.Modified {
		commit += " with changes"
	}
	return fmt.Sprintf("j17 %s (%s, %s%s)", v.Version, v.Go, v.Platform, commit)
}

func versionCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			var settings []debug.BuildSetting
			if info, ok := debug.ReadBuildInfo(); ok {
				settings = info.Settings
			}
			v := versionOf(settings)
			if asJSON {
				return json.NewEncoder(e.out).Encode(v)
			}
			_, err := fmt.Fprintln(e.out, v)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
