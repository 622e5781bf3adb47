package postgres_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// nodes runs two nodes of j17 on the databases: one works, the other one waits and says so. When the first one is
// killed, the other one works, and has everything that was acknowledged. In soaks they take turns.
func (m *machines) nodes(t *testing.T) {
	program := filepath.Join(m.folder, "j17")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "j17/cmd/j17")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names := []string{"j17-1", "j17-2"}
	for _, name := range names {
		m.startNode(t, program, name)
		if name == names[0] {
			m.answers(t, name, "/readyz", http.StatusOK)
		}
	}
	m.answers(t, names[1], "/readyz", http.StatusServiceUnavailable)
	m.answers(t, names[1], "/livez", http.StatusOK)

	// Instances are made until the first node is killed, and on: each once, by whoever answers.
	rounds := 1
	if os.Getenv("J17_SOAK") != "" {
		rounds = 5
	}
	c := &operator{m: m, t: t, names: names}
	c.login()
	for round := range rounds {
		works, waits := names[round%2], names[(round+1)%2]
		c.make(5)
		killed, p := make(chan error, 1), m.running[works+" j17"]
		go func() { killed <- p.command.Process.Kill() }()
		c.make(5)
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		<-p.ended
		m.answers(t, waits, "/readyz", http.StatusOK)
		c.make(1)
		m.startNode(t, program, works)
		m.answers(t, works, "/readyz", http.StatusServiceUnavailable)
	}
	c.check()
	for _, name := range names {
		m.kill9(t, name, "j17")
	}
}

// startNode starts a node from its plain files.
func (m *machines) startNode(t *testing.T, program, name string) {
	t.Helper()
	m.certify(t, name, "etc/j17")
	m.write(t, name, "etc/j17/j17.json", m.place(t, "j17.json", name))
	m.write(t, name, "etc/j17/store-password", password)
	m.write(t, name, "etc/j17/node-secret", strings.Repeat("a-secret-of-nodes-", 3))
	m.write(t, name, "etc/j17/operator-password", "a long password")
	m.start(
		t, name, m.settings(t, "j17.conf", name), program, "serve", "--config",
		filepath.Join(m.folder, name, "etc/j17/j17.json"), "--data", filepath.Join(m.folder, name, "var/lib/j17"),
		"--operator-email", "admin@example.com", "--operator-password-file",
		filepath.Join(m.folder, name, "etc/j17/operator-password"), "--no-backups",
	)
}

// answers waits until the internal listener of a node answers a path with a status.
func (m *machines) answers(t *testing.T, name, path string, status int) {
	t.Helper()
	await(t, fmt.Sprintf("%s of %s is %d", path, name, status), func() bool {
		return m.get(t, "https://"+m.at(t, name, "17001")+path, nil) == status
	})
}

// operator makes instances on the node that works.
type operator struct {
	m     *machines
	t     *testing.T
	names []string
	token string
	made  []string
}

// send sends a request to each node in turn until one answers otherwise than that it waits or is gone. again reports
// whether an earlier try may have been executed.
func (o *operator) send(method, path, body string) (status int, answer []byte, again bool) {
	o.t.Helper()
	for try := 0; ; try++ {
		if o.t.Failed() {
			o.t.FailNow()
		}
		name := o.names[try%len(o.names)]
		status, answer = o.try(name, method, path, body)
		switch {
		case status != 0 && status != http.StatusServiceUnavailable:
			return status, answer, again
		case status == 0 || strings.Contains(string(answer), "outcome_unknown"):
			again = true
		}
		_ = clock.System{}.Wait(o.t.Context(), time.Now().Add(50*time.Millisecond)) // the test ends then
		if o.t.Context().Err() != nil {
			o.t.Fatal(o.t.Context().Err())
		}
	}
}

// try sends a request to a node; 0 is no answer.
func (o *operator) try(name, method, path, body string) (status int, answer []byte) {
	o.t.Helper()
	url := "https://" + o.m.at(o.t, name, "17000") + path
	r, err := http.NewRequestWithContext(o.t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		o.t.Fatal(err)
	}
	r.Host = "control.example.com"
	r.Header.Set("Content-Type", "application/json")
	if o.token != "" {
		r.Header.Set("Authorization", "Bearer "+o.token)
	}
	resp, err := o.m.http.Do(r)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

func (o *operator) login() {
	o.t.Helper()
	status, answer, _ := o.send("POST", "/api/login", `{"email":"admin@example.com","password":"a long password"}`)
	var login struct{ Token string }
	if err := json.Unmarshal(answer, &login); err != nil || login.Token == "" {
		o.t.Fatalf("the log-in ends with %d %s", status, answer)
	}
	o.token = login.Token
}

// make makes instances.
func (o *operator) make(n int) {
	o.t.Helper()
	for range n {
		name := fmt.Sprintf("shop%d", len(o.made)+1)
		status, answer, again := o.send("POST", "/api/instances", `{"name":"`+name+`"}`)
		if status != http.StatusCreated && (!again || status != http.StatusConflict) {
			o.t.Fatalf("instance %s: %d %s", name, status, answer)
		}
		o.made = append(o.made, name)
	}
}

// check compares what was made with what there is.
func (o *operator) check() {
	o.t.Helper()
	_, answer, _ := o.send("GET", "/api/instances?limit=1000", "")
	for _, name := range o.made {
		if n := strings.Count(string(answer), `"name":"`+name+`"`); n != 1 {
			o.t.Errorf("there are %d instances %s, which was acknowledged", n, name)
		}
	}
}
