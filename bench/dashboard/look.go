package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// The overview asks what goes on every few seconds. It follows the events as they come, unless more come in a second
// than anybody can read: then it asks for the latest once in a while.
const (
	askEvery = 5 * time.Second
	readable = 150
)

// look asks the server for what an open overview asks for, until the context ends.
func (s *site) look(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	tailed := make(chan struct{})
	go func() {
		defer close(tailed)
		s.follow(ctx, client)
		for wait(ctx, now().Add(askEvery)) == nil {
			s.read(ctx, client, "events?before=now&count=10")
		}
	}()
	for i := 1; wait(ctx, now().Add(askEvery)) == nil; i++ {
		s.read(ctx, client, "overview")
		// What waits for a person is asked for less often.
		if i%3 == 0 {
			s.read(ctx, client, "attention")
		}
	}
	<-tailed
}

// follow reads the stream of all events, until there are too many.
func (s *site) follow(ctx context.Context, client *http.Client) {
	s.ask(ctx, client, "events/stream", func(body io.Reader) {
		lines := bufio.NewScanner(body)
		began, events := now(), 0
		for lines.Scan() {
			if !bytes.HasPrefix(lines.Bytes(), []byte("data: ")) {
				continue
			}
			if now().Sub(began) > time.Second {
				began, events = now(), 0
			}
			if events++; events > readable {
				return
			}
		}
	})
}

// read reads an answer to its end.
func (s *site) read(ctx context.Context, client *http.Client, path string) {
	s.ask(ctx, client, path, func(body io.Reader) { _, _ = io.Copy(io.Discard, body) })
}

// ask passes on the body of an answer. That the context ends is no error here, and others show in what is measured.
func (s *site) ask(ctx context.Context, client *http.Client, path string, read func(io.Reader)) {
	r, err := s.controlRequest(ctx, http.MethodGet, s.ops(path), nil)
	if err != nil {
		return
	}
	resp, err := client.Do(r)
	if err != nil {
		return
	}
	read(resp.Body)
	_ = resp.Body.Close()
}
