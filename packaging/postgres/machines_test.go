package postgres_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/storage/postgres/pgtest"
)

const (
	// loopback is the address of all machines, which differ in their ports.
	loopback = "127.0.0.1"
	// patience is how long a test waits for something that a machine has to do.
	patience = 2 * time.Minute
)

// machines are those of the plain files, each with a folder for /etc and /var and with ports of its own. What runs on
// them is not root.
type machines struct {
	folder   string
	programs string // those of PostgreSQL
	as       *syscall.Credential
	// postgres is the user that servers run as, and the superuser of the databases.
	postgres string
	ports    map[string]int
	running  map[string]*process
	http     *http.Client
}

// process is a program that runs on a machine.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// cleanup waits for the end of the test, or of the test program, which closes its input. It then ends all that has the
// folder $0 among its arguments, PostgreSQL last and so that it leaves nothing in shared memory, and removes the
// folder.
const cleanup = `exec 2>/dev/null
cat >/dev/null
end() { # SIGNAL KIND: signals all of a kind, and reports whether there was one
	found=1
	for process in /proc/[0-9]*; do
		args=$(tr '\0' ' ' <"$process/cmdline")
		case $args in *"$0"*) ;; *) continue ;; esac
		case $args in */bin/postgres\ -D*) kind=postgres ;; *) kind=other ;; esac
		[ "$kind" = "$2" ] && [ "$process" != "/proc/$$" ] || continue
		kill "-$1" "${process#/proc/}" && found=0
	done
	return $found
}
end KILL other
end CONT postgres
tries=100
while end QUIT postgres && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
end KILL postgres
rm -rf "$0"`

// newMachines makes the folders and certificates of machines. Without the programs that they need the test is skipped.
func newMachines(t *testing.T, programs ...string) *machines {
	t.Helper()
	m := &machines{
		programs: pgtest.Programs(t), ports: map[string]int{}, running: map[string]*process{},
	}
	for _, name := range programs {
		_, err := exec.LookPath(name)
		if err != nil {
			_, err = exec.LookPath("/usr/sbin/" + name)
		}
		if err != nil {
			const hint = "%s is not installed. Install it: apt-get install patroni etcd-server haproxy (Debian's names)"
			if os.Getenv("J17_ALL_TOOLS") != "" {
				t.Fatalf(hint, name)
			}
			t.Skipf("SKIPPED: "+hint, name)
		}
	}
	var err error
	if m.as, err = pgtest.User(); err != nil {
		t.Fatal(err)
	}

	// The folder is in memory where there is room, and goes when the test ends, however it does.
	var room syscall.Statfs_t
	const memory, roomNeeded = "/dev/shm", 4 << 30
	at := ""
	if syscall.Statfs(memory, &room) == nil && room.Bavail*uint64(room.Bsize) >= roomNeeded {
		at = memory
	}
	m.folder, err = os.MkdirTemp(at, "j17-machines-") //nolint:usetesting // other users cannot reach the test's own
	if err != nil {
		t.Fatal(err)
	}
	end := exec.Command("/bin/sh", "-c", cleanup, m.folder)
	end.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline, err := end.StdinPipe()
	if err == nil {
		err = end.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			m.showLogs(t)
		}
		_ = lifeline.Close() // which it waits for
		if err := end.Wait(); err != nil {
			t.Error(err)
		}
	})

	if m.as != nil {
		if err := os.Chown(m.folder, int(m.as.Uid), int(m.as.Gid)); err != nil {
			t.Fatal(err)
		}
		m.postgres = "postgres"
	} else {
		m.postgres = strings.TrimSpace(m.run(t, nil, "", "id", "-un"))
	}

	// Certificates for the one address of all machines.
	script, err := os.ReadFile("certificates.sh")
	if err != nil {
		t.Fatal(err)
	}
	m.run(t, nil, string(script), "/bin/sh", "-s", "--", "certificates", loopback)
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM([]byte(m.read(t, "certificates/ca.crt")))
	m.http = &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority}},
	}
	return m
}

// command returns a command of a machine.
func (m *machines) command(t *testing.T, env []string, program string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	c.Dir, c.Env = m.folder, append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + m.folder}, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.as, Setpgid: true}
	return c
}

// run runs a command to its end and returns what it has printed.
func (m *machines) run(t *testing.T, env []string, input, program string, args ...string) string {
	t.Helper()
	c := m.command(t, env, program, args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	return string(out)
}

// read returns a file below the folder.
func (m *machines) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// port returns where a machine listens in place of a port that the plain files name.
func (m *machines) port(t *testing.T, machine, port string) int {
	t.Helper()
	name := machine + ":" + port
	for m.ports[name] == 0 {
		free, err := pgtest.FreePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(slices.Collect(maps.Values(m.ports)), free) {
			m.ports[name] = free
		}
	}
	return m.ports[name]
}

// at returns the address of a port of a machine.
func (m *machines) at(t *testing.T, machine, port string) string {
	t.Helper()
	return fmt.Sprintf("%s:%d", loopback, m.port(t, machine, port))
}

var (
	inFiles     = regexp.MustCompile(`/(etc|var|dev)/`)
	namedPorts  = regexp.MustCompile(`\b(pg\d|j17-\d|0\.0\.0\.0):(\d+)\b`)
	ownPorts    = regexp.MustCompile(`(["\s]):(\d+)\b`)
	checkPorts  = regexp.MustCompile(`(?m)^(\s*server (\S+) .*\bport )(\d+)`)
	environment = regexp.MustCompile(`(?m)^Environment=(.*)$`)
)

// place returns a plain file as it has to be for a machine here: with the folders and ports of the machines, and with
// replacements, each of which has to be in the file.
func (m *machines) place(t *testing.T, file, machine string, replacements ...string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(raw), "%H", machine)
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(text, replacements[i]) {
			t.Fatalf("%s does not have %q", file, replacements[i])
		}
		text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
	}
	text = checkPorts.ReplaceAllStringFunc(text, func(found string) string {
		part := checkPorts.FindStringSubmatch(found)
		return part[1] + strconv.Itoa(m.port(t, part[2], part[3]))
	})
	text = namedPorts.ReplaceAllStringFunc(text, func(found string) string {
		name, port, _ := strings.Cut(found, ":")
		if name == "0.0.0.0" {
			name = machine
		}
		return m.at(t, name, port)
	})
	text = ownPorts.ReplaceAllStringFunc(text, func(found string) string {
		part := ownPorts.FindStringSubmatch(found)
		return part[1] + m.at(t, machine, part[2])
	})
	return inFiles.ReplaceAllString(text, filepath.Join(m.folder, machine)+"/$1/")
}

// write writes a file of a machine.
func (m *machines) write(t *testing.T, machine, name, text string) {
	t.Helper()
	name = filepath.Join(m.folder, machine, name)
	m.run(t, nil, text, "/bin/sh", "-c", `umask 077 && mkdir -p "${0%/*}" && cat >"$0"`, name)
}

// start starts a program on a machine. What it prints goes to a file in the machine's folder.
func (m *machines) start(t *testing.T, machine string, env []string, program string, args ...string) {
	t.Helper()
	c := m.command(t, env, program, args...)
	log, err := os.OpenFile(m.log(machine, program), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the program has it
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait() // how it has ended says its log
		close(ended)
	}()
	m.running[machine+" "+filepath.Base(program)] = &process{command: c, ended: ended}
}

// log returns the name of the file with what a program has printed.
func (m *machines) log(machine, program string) string {
	return filepath.Join(m.folder, machine, filepath.Base(program)+".log")
}

// showLogs shows how the logs end.
func (m *machines) showLogs(t *testing.T) {
	t.Helper()
	const shown = 3 << 10
	files, err := filepath.Glob(m.log("*", "*"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s ends so:\n%s", file, text[max(0, len(text)-shown):])
	}
}

// kill9 kills a program on a machine.
func (m *machines) kill9(t *testing.T, machine, program string) {
	t.Helper()
	p := m.running[machine+" "+program]
	if err := p.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// settings returns the variables that a part of a unit file sets on a machine.
func (m *machines) settings(t *testing.T, file, machine string) (env []string) {
	t.Helper()
	for _, found := range environment.FindAllStringSubmatch(m.place(t, file, machine), -1) {
		env = append(env, found[1])
	}
	return env
}

// get asks an address over HTTPS, and decodes the answer if it is not nil. It returns the status, 0 for no answer.
func (m *machines) get(t *testing.T, url string, answer any) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.http.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0
	}
	if answer != nil && res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, answer); err != nil {
			t.Fatalf("%s: %v\n%s", url, err, body)
		}
	}
	return res.StatusCode
}

// await asks until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !is() {
		if err := (clock.System{}).Wait(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}
