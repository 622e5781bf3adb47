package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
	"j17/internal/edge/scenario"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

// localWorld is a server in this program, on a folder that is removed in the end, with an instance for each scenario.
func localWorld(ctx context.Context, e *env, o *testOptions) (scenarioWorld, error) {
	compiled, source, err := e.compile(o.spec)
	if err != nil {
		return scenarioWorld{}, err
	}
	envelope, _ := spec.Unwrap(source)
	l := &localServer{env: e, name: o.spec, source: envelope.Spec, spec: compiled, blobs: o.blobs}
	dir, err := os.MkdirTemp("", "j17-test-")
	if err != nil {
		return scenarioWorld{}, err
	}
	dev, err := server.OpenDev(ctx, server.DevOptions{Options: server.Options{
		Dir: dir, Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: programVersion,
		Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
	}})
	if err != nil {
		return scenarioWorld{}, errors.Join(err, os.RemoveAll(dir))
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- dev.Run(running) }()
	end := func() error {
		stop()
		return errors.Join(<-done, dev.Close(), os.RemoveAll(dir))
	}
	if err := l.open(ctx, dev.URL(), dev.Ready().Operator); err != nil {
		return scenarioWorld{}, errors.Join(err, end())
	}
	return scenarioWorld{l.instance, end}, nil
}

// localServer makes instances with a spec on a server in this program.
type localServer struct {
	env    *env
	name   string
	source []byte
	spec   *spec.Compiled
	blobs  localBlobs
	url    string
	*operating
}

func (l *localServer) open(ctx context.Context, at string, operator server.Login) error {
	l.url = at
	s := &connection{url: sourced{value: at}}
	t, err := s.control()
	if err != nil {
		return err
	}
	c, err := controlClient(l.env, t, 0)
	if err != nil {
		return err
	}
	got, err := logIn(ctx, c, operator.Email, operator.Password)
	if err != nil {
		return err
	}
	t.key = got.Token
	c, err = controlClient(l.env, t, longRequest)
	if err != nil {
		return err
	}
	l.operating = &operating{Client: c, connection: s, env: l.env, scratch: true}
	// Faults of the spec are reported once here, and not by every scenario.
	_, _, err = l.instance(ctx, -1)
	if j17.CodeOf(err) == j17.CodeInvalidSpec && len(l.blobs) == 0 {
		l.env.note("--blob NAME=FILE brings custom code along.\n")
	}
	return err
}

// instance makes an instance for the nth scenario and returns its production environment, where nothing has happened
// yet, with what stores history there.
func (l *localServer) instance(ctx context.Context, n int) (*client.Client, *scenario.Past, error) {
	var made wire.Instance
	name := fmt.Sprintf("scenario-%d", n+1)
	if err := l.call(
		ctx, http.MethodPost, []string{"instances"}, nil, wire.NewInstance{Name: name}, &made,
	); err != nil {
		return nil, nil, err
	}
	for _, b := range l.blobs {
		if err := l.upload(ctx, made.ID, b.name, b.file); err != nil {
			return nil, nil, err
		}
	}
	var raw json.RawMessage
	q := deployRequest{path: []string{"instances", made.ID, "spec"}, body: l.source, name: l.name, source: l.source}
	if err := l.send(ctx, q, url.Values{"environment": {string(j17.Prod)}}, &raw); err != nil {
		return nil, nil, err
	}
	var key wire.MadeKey
	body := wire.NewKey{Name: name, Scope: j17.ScopeWrite, Environment: j17.Prod}
	if err := l.call(ctx, http.MethodPost, []string{"instances", made.ID, "keys"}, nil, body, &key); err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Options{
		URL: l.url, Host: name + "." + devDomain, Key: key.Token,
		Clock: clock.System{},
	})
	past := &scenario.Past{Spec: l.spec, Import: func(ctx context.Context, lines []byte) error {
		var raw json.RawMessage
		return l.Call(ctx, client.Request{
			Method: http.MethodPost, Path: []string{"api", "instances", made.ID, "ops", string(j17.Prod), "import"},
			Body: &client.Content{
				From: bytes.NewReader(lines), Size: int64(len(lines)), Type: "application/x-ndjson",
			},
		}, &raw)
	}}
	return c, past, err
}

func (l *localServer) upload(ctx context.Context, instance, name, file string) error {
	f, err := os.Open(file) //nolint:gosec // the user names the file
	if err != nil {
		return unreadable(file, err)
	}
	var answer json.RawMessage
	err = l.Upload(ctx, []string{"api", "instances", instance, "ops", string(j17.Prod), "blobs"}, name, f, &answer)
	return errors.Join(err, f.Close())
}
