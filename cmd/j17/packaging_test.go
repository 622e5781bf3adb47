package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"j17/internal/server"
)

func readPackaging(t *testing.T, elem ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestPackagedSettings fails where an image or the compose file sets a variable that the server does not know.
func TestPackagedSettings(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	var o server.ServeOptions
	serveFlags(flags, &o)
	named := 0
	for _, file := range []string{"Dockerfile", "compose.yaml"} {
		for _, name := range regexp.MustCompile(`J17_[A-Z_]+`).FindAllString(readPackaging(t, "packaging", file), -1) {
			named++
			flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "J17_"), "_", "-"))
			if flags.Lookup(flag) == nil {
				t.Errorf("%s sets %s, and j17 serve has no flag --%s", file, name, flag)
			}
		}
	}
	if named < 6 {
		t.Errorf("only %d variables were found", named)
	}
}

// TestDockerfile looks at what can be known without building the image: that what it copies is there, and that its Go is not
// older than the one of go.mod.
func TestDockerfile(t *testing.T) {
	text := readPackaging(t, "packaging", "Dockerfile")
	copied := 0
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--") {
			continue
		}
		for _, source := range words[1 : len(words)-1] {
			copied++
			if _, err := os.Stat(filepath.Join("..", "..", source)); err != nil {
				t.Errorf("it copies %s: %v", source, err)
			}
		}
	}
	if copied < 4 {
		t.Errorf("only %d files are copied", copied)
	}
	image := regexp.MustCompile(`FROM golang:(\d+\.\d+) AS`).FindStringSubmatch(text)
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readPackaging(t, "go.mod"))
	if image == nil || module == nil || image[1] != module[1] {
		t.Errorf("the image is built with Go %v, and go.mod asks for %v", image, module)
	}
}

// TestUnitFile fails where the unit file is not the one of the guide, and where systemd does not take it.
func TestUnitFile(t *testing.T) {
	unit := readPackaging(t, "packaging", "j17.service")
	_, settings, _ := strings.Cut(unit, "\n") // without the comment on top
	if !strings.Contains(readPackaging(t, "docs", "guides", "self-hosting.md"), "```ini\n"+settings+"```") {
		t.Error("docs/guides/self-hosting.md shows another unit than packaging/j17.service")
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// A copy whose program exists.
	program, path := "/usr/local/bin/j17", filepath.Join(t.TempDir(), "j17.service")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(unit, program) {
		t.Fatalf("the unit does not start %s", program)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(unit, program, self)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, analyze, "verify", "--man=no", path).CombinedOutput()
	if err != nil || strings.Contains(string(out), "j17.service:") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
