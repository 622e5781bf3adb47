package server_test

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"j17/internal/server"
	"j17/internal/storage/postgres/pgtest"
)

// freeAddress returns an address of this machine that nobody listens on at the moment.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	port, err := pgtest.FreePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// TestNodesOfOneDatabase lets two servers share a database: one works and the other one waits, until the first ends.
// The second has everything then, what only servers know of too.
func TestNodesOfOneDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Shared(t)
	schema, secret, password := db.Schema(t), file(t, nodeSecret), file(t, "a long password")
	on := func(name string) server.ServeOptions {
		o := options(t)
		o.Store = server.StoreOptions{
			Address: db.Address(), Schema: schema, Plain: true, AllowSingle: true, Connections: 12,
		}
		o.Role, o.Node, o.NodeSecretFile, o.NoBackups = server.RoleAll, name, secret, true
		o.OperatorEmail, o.OperatorPasswordFile = "admin@example.test", password
		o.Listen, o.InternalListen = freeAddress(t), freeAddress(t)
		return o
	}
	first := start(t, on("one"))

	// The second one says that it waits, and for whom.
	o := on("two")
	waits := &heard{text: "this one waits", yes: make(chan struct{})}
	o.Logger = slog.New(slog.NewTextHandler(waits, nil))
	if found := o.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	var second *server.Serve
	opened := make(chan error, 1)
	go func() {
		var err error
		second, err = server.OpenServe(t.Context(), o)
		opened <- err
	}()
	select {
	case <-waits.yes:
	case err := <-opened:
		t.Fatalf("the second server does not wait: %v", err)
	}
	for _, address := range []string{o.Listen, o.InternalListen} {
		r := request(t, "GET", "http://"+address+"/readyz", "", "", nil).want(t, "a server that waits", 503)
		if r.body["code"] != "standby" ||
			r.body["detail"] != "This server waits, and one works. Send requests to that one." {
			t.Errorf("a server that waits answers %s", r.text)
		}
	}

	// The first one ends.
	const login = `{"email":"admin@example.test","password":"a long password"}`
	const ctl = "control.example.test"
	token := first.send(t, "POST", ctl, "/api/login", "", login).want(t, "log in", 200).text1(t, "token")
	first.send(t, "POST", ctl, "/api/instances", token, `{"name":"shop"}`).want(t, "create", 201)
	first.end(t)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	works := running(t, o, second)
	r := works.send(t, "GET", ctl, "/api/instances", token, "").want(t, "look", 200)
	if !strings.Contains(r.text, `"shop"`) {
		t.Errorf("the second server has the instances %s", r.text)
	}
}

// heard is a log that waits for a text.
type heard struct {
	text string
	yes  chan struct{}
	once sync.Once
}

// Write is part of io.Writer.
func (h *heard) Write(line []byte) (int, error) {
	if strings.Contains(string(line), h.text) {
		h.once.Do(func() { close(h.yes) })
	}
	return len(line), nil
}
