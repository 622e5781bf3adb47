package postgres_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composed is the part of a compose file that can be looked at without running it.
type composed struct {
	Services map[string]service
	Networks map[string]any
	Volumes  map[string]any
}

type service struct {
	Build       any
	Command     []string
	Environment map[string]string
	Volumes     []string
	NetworkMode string `yaml:"network_mode"`
	Networks    map[string]struct {
		Address string `yaml:"ipv4_address"`
	}
	DependsOn []string `yaml:"depends_on"`
	Ports     []string
}

// TestCompose looks whether the compose file has the machines of the plain files with their names, and leads to nothing
// that is not there. It does not run it.
func TestCompose(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file composed
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}

	// What services name.
	addresses := map[string]string{}
	for name, s := range file.Services {
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, named := file.Volumes[from]; !named && from != "./certificates" && from != "./secrets" {
				t.Errorf("%s has a volume %s that nobody declares", name, from)
			}
		}
		for _, other := range append(s.DependsOn, strings.TrimPrefix(s.NetworkMode, "service:")) {
			if _, is := file.Services[other]; other != "" && !is {
				t.Errorf("%s needs a service %s", name, other)
			}
		}
		if at := s.Networks["default"].Address; at != "" {
			if addresses[at] != "" {
				t.Errorf("%s and %s have the address %s", name, addresses[at], at)
			}
			addresses[at] = name
		}
		if s.Build == nil {
			t.Errorf("%s runs an image that nobody builds", name)
		}
	}

	// The machines are those of the plain files, and each is told its own name.
	for _, name := range databases() {
		etcd := "etcd" + name[len("pg"):]
		if got := file.Services[name].Command; !slices.Equal(got, []string{"patroni", name}) {
			t.Errorf("%s runs %q", name, got)
		}
		if got := file.Services[etcd]; !slices.Equal(got.Command, []string{"etcd", name}) ||
			got.NetworkMode != "service:"+name {
			t.Errorf("%s runs %q in %q", etcd, got.Command, got.NetworkMode)
		}
	}
	for _, name := range []string{"j17-1", "j17-2"} {
		env := file.Services[name].Environment
		certificate, key := "/certificates/"+name+".crt", "/certificates/"+name+".key"
		for variable, want := range map[string]string{
			"J17_NODE": name, "J17_INTERNAL_URL": "https://" + name + ":17001",
			"J17_TLS_CERT": certificate, "J17_TLS_KEY": key,
			"J17_INTERNAL_TLS_CERT": certificate, "J17_INTERNAL_TLS_KEY": key,
			"J17_TRUSTED_PROXY": file.Services["proxy"].Networks["default"].Address,
		} {
			if env[variable] != want {
				t.Errorf("%s of %s is %q, want %q", variable, name, env[variable], want)
			}
		}
	}
}

// TestImage looks whether the image copies what is there, and whether its script can be read by the shell.
func TestImage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, line := range regexp.MustCompile(`(?m)^COPY (.*)$`).FindAllStringSubmatch(string(raw), -1) {
		words := slices.DeleteFunc(strings.Fields(line[1]), func(word string) bool {
			return strings.HasPrefix(word, "--")
		})
		for _, source := range words[:len(words)-1] {
			copied++
			if _, err := os.Stat(source); err != nil {
				t.Error(err)
			}
		}
	}
	if copied < 6 {
		t.Errorf("only %d files are copied", copied)
	}
	if out, err := exec.Command("/bin/sh", "-n", "start.sh").CombinedOutput(); err != nil {
		t.Errorf("start.sh: %v\n%s", err, out)
	}
}

// TestUnits has systemd read the parts of unit files beside the units that they belong to.
func TestUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: systemd-analyze is not installed. Install it: apt-get install systemd (Debian's name)")
	}
	for unit, part := range map[string]string{"etcd": "etcd.conf", "patroni": "patroni.conf", "j17": "j17.conf"} {
		text, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# /etc/systemd/system/"+unit+".service.d/") {
			t.Errorf("%s does not say where it belongs", part)
		}
		folder := t.TempDir()
		path := filepath.Join(folder, unit+".service")
		for name, text := range map[string]string{
			path:                               "[Service]\nExecStart=/bin/true\n",
			filepath.Join(path+".d", "a.conf"): string(text),
		} {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command(analyze, "verify", "--man=no", path)
		c.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+folder+":")
		if out, err := c.CombinedOutput(); err != nil || strings.Contains(string(out), "a.conf") {
			t.Errorf("%s: %v\n%s", part, err, out)
		}
	}
}
