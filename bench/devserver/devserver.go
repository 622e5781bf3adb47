// Package devserver starts development servers for the programs that measure them.
package devserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// endTime is how long a server has to end by itself.
const endTime = 30 * time.Second

// Server is a development server on loopback.
type Server struct {
	// URL is where the hosts of all environments answer, Internal where the internal listener does.
	URL, Internal string
	// Instance is the id of its instance, NodeSecret what the internal listener asks for.
	Instance, NodeSecret string
	// Name is what the instance is called, Operator who may do everything.
	Name     string
	Operator struct{ Email, Password string }
	// Dashboard is the address of the dashboard, LoginLink one that signs in to it once.
	Dashboard, LoginLink string
	// WriteKeys has the write key of each environment.
	WriteKeys map[string]string

	process *exec.Cmd
	dir     string
}

// Start starts a program as a development server with the text of a spec and further flags, in a folder of its own. It
// is to be ended.
func Start(ctx context.Context, program, spec string, flags ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "j17-bench-*")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, WriteKeys: map[string]string{}}
	if err := s.start(ctx, program, spec, flags); err != nil {
		s.End()
		return nil, fmt.Errorf("the server does not start: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, program, spec string, flags []string) error {
	file := filepath.Join(s.dir, "spec.json")
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		return err
	}

	// The process, which knows nothing of its user's home.
	args := append([]string{
		"dev", file, "--data", filepath.Join(s.dir, "data"), "--listen", "127.0.0.1:0", "--internal-listen",
		"127.0.0.1:0", "--json",
	}, flags...)
	p := exec.CommandContext(ctx, program, args...) //nolint:gosec // the program that the caller names
	p.Env = append(p.Environ(), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir)
	p.Cancel = func() error { return p.Process.Signal(os.Interrupt) }
	p.WaitDelay = endTime
	lines, err := p.StdoutPipe()
	if err != nil {
		return err
	}
	var told bytes.Buffer
	p.Stderr = &told
	if err := p.Start(); err != nil {
		return err
	}
	s.process = p

	// What it says when it is ready.
	var ready struct {
		URLs       map[string]string
		Keys       map[string]struct{ Write string }
		Instance   struct{ ID, Name string }
		Operator   struct{ Email, Password string }
		LoginLink  string `json:"login_link"`
		NodeSecret string `json:"node_secret"`
	}
	if err := json.NewDecoder(lines).Decode(&ready); err != nil {
		_ = p.Wait() // what it has said counts
		return fmt.Errorf("%w: %s", err, told.Bytes())
	}
	_, port, ok := strings.Cut(strings.TrimPrefix(ready.URLs["prod"], "http://"), ":")
	if !ok {
		return errors.New("it does not say where it listens")
	}
	s.URL, s.Internal = "http://127.0.0.1:"+port, ready.URLs["internal"]
	s.Instance, s.Name, s.NodeSecret = ready.Instance.ID, ready.Instance.Name, ready.NodeSecret
	s.Operator, s.Dashboard, s.LoginLink = ready.Operator, ready.URLs["dashboard"], ready.LoginLink
	for env, keys := range ready.Keys {
		s.WriteKeys[env] = keys.Write
	}
	return nil
}

// End ends the server, and removes its folder.
func (s *Server) End() {
	if s.process != nil {
		_ = s.process.Process.Signal(os.Interrupt)
		_ = s.process.Wait() // it was told to end
	}
	_ = os.RemoveAll(s.dir) // of the system's temporary files
}

// Request makes a request to an environment, with its write key and a body of JSON.
func (s *Server) Request(ctx context.Context, env, method, path string, body io.Reader) (*http.Request, error) {
	host := "app.localhost"
	if env != "prod" {
		host = "app-" + env + ".localhost"
	}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		return nil, err
	}
	r.Host = host
	r.Header.Set("Authorization", "Bearer "+s.WriteKeys[env])
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// Answer sends a request and returns what it is answered. A refusal is an error.
func Answer(client *http.Client, r *http.Request) ([]byte, error) {
	resp, err := client.Do(r) //nolint:gosec // to the server that was started
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %d %s", r.URL.Path, resp.StatusCode, text.Bytes())
	}
	return text.Bytes(), err
}

// Administer sends a request about the environment prod to the internal listener, below whose path for it the path is,
// and returns what it is answered. A refusal is an error.
func (s *Server) Administer(
	ctx context.Context, client *http.Client, method, path string, body io.Reader,
) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.Internal+"/internal/instances/"+s.Instance+"/prod/"+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Node-Secret", s.NodeSecret)
	r.Header.Set("Content-Type", "application/json")
	return Answer(client, r)
}

// WriteNew has so many clients write to a new order each time until the context ends, and returns how many requests
// were carried out. path is what stands behind the order's own. That there were none is an error.
func (s *Server) WriteNew(ctx context.Context, client *http.Client, clients int, path, body string) (int, error) {
	var written atomic.Int64
	errs := make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				r, err := s.Request(
					ctx, "prod", http.MethodPost, "/order/"+uuid.NewString()+path, strings.NewReader(body),
				)
				if err == nil {
					_, err = Answer(client, r)
				}
				if err == nil {
					written.Add(1)
				} else if ctx.Err() == nil {
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	err := errors.Join(errs...)
	if err == nil && written.Load() == 0 {
		err = errors.New("nothing was written")
	}
	return int(written.Load()), err
}

// Memory reads a line of the process's status, such as VmRSS, in MiB. It needs Linux.
func (s *Server) Memory(line string) (int, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(s.process.Process.Pid) + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), line+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("the status of the server has no %s", line)
	}
	kilobytes, err := strconv.Atoi(fields[0])
	return kilobytes >> 10, err
}

// Processor is the processor time that the process has taken so far. It needs Linux.
func (s *Server) Processor() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(s.process.Process.Pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// Behind the name of the program, which stands in parentheses: user and system time are the twelfth and thirteenth
	// field, in ticks.
	const user, system, tick = 11, 12, 10 * time.Millisecond
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) <= system {
		return 0, errors.New("the process has no times")
	}
	inUser, err := strconv.Atoi(fields[user])
	inSystem, err2 := strconv.Atoi(fields[system])
	return time.Duration(inUser+inSystem) * tick, errors.Join(err, err2)
}
