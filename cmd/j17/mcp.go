package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"j17"
	"j17/docs"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
	"j17/internal/edge/mcp"
	"j17/internal/server"
)

// mcpRequestTime bounds a request that an assistant waits for, mcpAttempts how often it is sent.
const (
	mcpRequestTime = 30 * time.Second
	mcpAttempts    = 2
)

func mcpCommand(e *env) *cobra.Command {
	var allowWrites bool
	var specFile, folder string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an assistant over the Model Context Protocol",
		Long: `Serve an assistant over the Model Context Protocol, on standard input and output: tools to check a spec, to try events on it, to
read states and events of a running server, to explain errors and to read the documentation. It is read-only unless it is
started with --allow-writes. Assistants start it themselves; 'j17 docs assistants' says how to tell them.`,
		Example: "  j17 mcp --spec spec.json\n  j17 mcp --spec spec.json --env test --allow-writes",
		Args:    noArgs,
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&allowWrites, "allow-writes", false, "let the assistant write events; they are for good")
	f.StringVar(&specFile, "spec", "", "spec `file` that tools work on where the assistant names none")
	f.StringVar(&folder, "files", ".", "`folder` that the assistant may have spec and event files read from")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// What the assistant may read.
		if specFile == "-" {
			return usageError{errors.New("--spec cannot be standard input, which the assistant talks on")}
		}
		library, err := docs.Load()
		if err != nil {
			return err
		}
		files, err := os.OpenRoot(folder)
		if err != nil {
			return fmt.Errorf("the folder of --files cannot be opened: %w", err)
		}

		// A server that cannot be reached does not end the program: it may be started later.
		running := &assistedServer{env: e, flags: r, writes: allowWrites}
		if _, err := running.connect(); err != nil {
			if _, ok := errors.AsType[notYet](err); !ok {
				return errors.Join(err, files.Close())
			}
			e.note("States and events cannot be read yet: %s\n", sentence(err))
		}
		if allowWrites {
			if _, where, err := e.reach(r); err == nil && where != "" {
				e.note("Events are written to %s.\n", where)
			}
		}

		// Without a Writer there is no tool that writes.
		o := mcp.Options{
			Version: programVersion, Docs: library, Reader: running, Files: files.FS(), Clock: clock.System{},
			Hide: running.hide,
		}
		if allowWrites {
			o.Writer = assistedWriter{running}
		}
		if specFile != "" {
			o.Spec = func() ([]byte, error) { return e.read(specFile) }
		}
		return errors.Join(mcp.New(o).Run(cmd.Context(), e.in, e.out), files.Close())
	}
	return cmd
}

// assistedServer is the running server that an assistant looks at. It is looked up again for each call, since a
// development server may be started, and get its keys, after the assistant. It reads; assistedWriter writes.
type assistedServer struct {
	env    *env
	flags  *remote
	writes bool

	mu sync.Mutex
	// keys are all keys that were used, to keep them out of answers.
	keys []string
	// client is the one that was last used, for the target; nil before the first.
	client *client.Client
	leads  target
}

// connect returns a client. Unless writes are allowed, it has the read key of a development server, and whatever key it
// has, it sends nothing that could write.
func (s *assistedServer) connect() (*client.Client, error) {
	t, err := s.env.resolve(s.flags)
	if err != nil {
		return nil, err
	}
	s.remember(t.key)
	o := client.Options{Clock: clock.System{}, Attempts: mcpAttempts, Timeout: mcpRequestTime}
	if !s.writes {
		t.key = s.readKey(t.key)
		s.remember(t.key)
		o.Around = func(next http.RoundTripper) http.RoundTripper { return readOnly{next} }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil && s.leads.url == t.url && s.leads.host == t.host && s.leads.key == t.key &&
		s.leads.roots.Equal(t.roots) {
		return s.client, nil
	}
	o.URL, o.Host, o.Key, o.RootCAs = t.url, t.host, t.key, t.roots
	s.client, err = client.New(o)
	s.leads = t
	return s.client, err
}

// readKey returns the read key that belongs to the write key of a development server, any other key as it is.
func (s *assistedServer) readKey(key string) string {
	dev, err := server.ReadDevAccess(cmp.Or(s.flags.data, s.env.getenv("J17_DATA"), defaultData))
	if err != nil {
		return key // there is no development server, so it is not one of its keys
	}
	for _, pair := range dev.Keys {
		if pair.Write == key {
			return pair.Read
		}
	}
	return key
}

func (s *assistedServer) remember(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.keys, key) {
		s.keys = append(s.keys, key)
	}
}

// hide takes the keys out of a text.
func (s *assistedServer) hide(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.keys {
		text = strings.ReplaceAll(text, key, "[API key]")
	}
	return text
}

// State implements mcp.Reader.
func (s *assistedServer) State(ctx context.Context, key j17.Key, o client.StateOptions) (client.State, error) {
	c, err := s.connect()
	if err != nil {
		return client.State{}, err
	}
	return c.State(ctx, key, o)
}

// Events implements mcp.Reader.
func (s *assistedServer) Events(
	ctx context.Context, key j17.Key, o client.EventsOptions,
) func(yield func(json.RawMessage, error) bool) {
	c, err := s.connect()
	if err != nil {
		return func(yield func(json.RawMessage, error) bool) { yield(nil, err) }
	}
	return c.Events(ctx, key, o)
}

// IDs implements mcp.Reader.
func (s *assistedServer) IDs(
	ctx context.Context, aggregateType, start string, count uint64,
) func(yield func(string, error) bool) {
	c, err := s.connect()
	if err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return c.IDs(ctx, aggregateType, start, count)
}

// Feed implements mcp.Reader.
func (s *assistedServer) Feed(
	ctx context.Context, f client.FeedFilter, after string, count uint64,
) (client.FeedPage, error) {
	c, err := s.connect()
	if err != nil {
		return client.FeedPage{}, err
	}
	return c.Feed(ctx, f, after, count)
}

// Projection implements mcp.Reader.
func (s *assistedServer) Projection(
	ctx context.Context, name, id string, o client.ProjectionOptions,
) (client.Projected, error) {
	c, err := s.connect()
	if err != nil {
		return client.Projected{}, err
	}
	return c.Projection(ctx, name, id, o)
}

// ProjectionRows implements mcp.Reader.
func (s *assistedServer) ProjectionRows(ctx context.Context, name string, q url.Values) (client.RowPage, error) {
	c, err := s.connect()
	if err != nil {
		return client.RowPage{}, err
	}
	return c.ProjectionRows(ctx, name, q)
}

// CountRows implements mcp.Reader.
func (s *assistedServer) CountRows(ctx context.Context, name string, q url.Values) (uint64, error) {
	c, err := s.connect()
	if err != nil {
		return 0, err
	}
	return c.CountRows(ctx, name, q)
}

// Places implements mcp.Reader.
func (s *assistedServer) Places(
	ctx context.Context, aggregateType, question string, q url.Values,
) (client.RowPage, error) {
	c, err := s.connect()
	if err != nil {
		return client.RowPage{}, err
	}
	return c.Places(ctx, aggregateType, question, q)
}

// assistedWriter writes to the server of an assistant that is allowed to write.
type assistedWriter struct{ server *assistedServer }

// PostEvent implements mcp.Writer.
func (w assistedWriter) PostEvent(
	ctx context.Context, key j17.Key, ev client.NewEvent, o client.WriteOptions,
) (client.Receipt, error) {
	c, err := w.server.connect()
	if err != nil {
		return client.Receipt{}, err
	}
	return c.PostEvent(ctx, key, ev, o)
}

// TryEvent implements mcp.Writer.
func (w assistedWriter) TryEvent(
	ctx context.Context, key j17.Key, ev client.NewEvent, o client.WriteOptions,
) (json.RawMessage, error) {
	c, err := w.server.connect()
	if err != nil {
		return nil, err
	}
	return c.TryEvent(ctx, key, ev, o)
}

// readOnly sends requests that read and refuses all others.
type readOnly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, fmt.Errorf("%s was not sent: this program was started without --allow-writes", req.Method)
	}
	return r.next.RoundTrip(req)
}
