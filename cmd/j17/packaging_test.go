package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	flags := serveFlagSet()
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

// TestDockerfile looks at what can be known without building the image: that what it copies is there, and that its Go
// is not older than the one of go.mod.
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

// TestImageCanBeWritten looks whether the folders that the image's settings name belong to the server's user and
// survive the container, whether what is asked for its health is a command, and whether what belongs into no image is
// left out by every builder.
func TestImageCanBeWritten(t *testing.T) {
	text, compose := readPackaging(t, "packaging", "Dockerfile"), readPackaging(t, "packaging", "compose.yaml")
	user := regexp.MustCompile(`(?m)^USER (\S+)$`).FindStringSubmatch(text)
	volumes := regexp.MustCompile(`(?m)^VOLUME (.*)$`).FindStringSubmatch(text)
	for _, variable := range []string{"J17_DATA", "J17_BACKUPS"} {
		folder := regexp.MustCompile(variable + `=(\S+)`).FindStringSubmatch(text)
		if user == nil || volumes == nil || folder == nil {
			t.Fatalf("%s: user %v, volumes %v, folder %v", variable, user, volumes, folder)
		}
		if !strings.Contains(text, "--chown="+user[1]+" /out"+folder[1]+" "+folder[1]+"\n") ||
			!slices.Contains(strings.Fields(volumes[1]), folder[1]) ||
			!strings.Contains(compose, ":"+folder[1]+"\n") {
			t.Errorf("%s names %s, which is no volume that belongs to %s", variable, folder[1], user[1])
		}
	}
	var check []string
	if m := regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD (\[.*\])$`).FindStringSubmatch(text); m == nil ||
		json.Unmarshal([]byte(m[1]), &check) != nil {
		t.Fatal("the image has no health check")
	}
	root := rootCommand((&env{getenv: func(string) string { return "" }}))
	if cmd, rest, err := root.Find(check[1:]); err != nil || len(rest) > 0 || cmd == root {
		t.Errorf("the health check is %q, of which %q is no command: %v", check, rest, err)
	}
	ignored := strings.Fields(readPackaging(t, ".dockerignore"))
	for _, name := range []string{".git", "j17-data*"} {
		if !slices.Contains(ignored, name) {
			t.Errorf("%s gets into the image's build", name)
		}
	}
}

// TestUnitCanWrite looks whether the unit has the folders of data and backups that the guide's settings name made for
// the server's user, and starts no server again whose settings are wrong.
func TestUnitCanWrite(t *testing.T) {
	unit, guide := readPackaging(t, "packaging", "j17.service"), readPackaging(t, "docs", "guides", "self-hosting.md")
	data := regexp.MustCompile(`"data": "/var/lib/(\S+)"`).FindStringSubmatch(guide)
	if data == nil || !strings.Contains(
		unit, "\nStateDirectory="+data[1]+" "+filepath.Base(server.DefaultBackups("/var/lib/"+data[1]))+"\n",
	) {
		t.Errorf("the guide's settings have the data in %q, and the unit makes other folders", data)
	}
	if !strings.Contains(unit, fmt.Sprintf("\nRestartPreventExitStatus=%d\n", exitUsage)) {
		t.Error("a server with wrong settings is started again and again")
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
	out, err := startable(t, analyze, "verify", "--man=no", path).CombinedOutput()
	if err != nil || strings.Contains(string(out), "j17.service:") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
