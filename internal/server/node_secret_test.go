package server_test

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"j17/internal/server"
)

// hearing is a writer of a log that tells when a line has a text.
type hearing struct {
	text  string
	heard chan struct{}
	once  sync.Once
}

func listenFor(text string) *hearing { return &hearing{text: text, heard: make(chan struct{})} }

// Write takes a line.
func (h *hearing) Write(p []byte) (int, error) {
	if strings.Contains(string(p), h.text) {
		h.once.Do(func() { close(h.heard) })
	}
	return len(p), nil
}

// TestTheNodeSecretIsChanged goes through the states of files with a node secret that the guide leads through: nodes
// know each other in all of them.
func TestTheNodeSecretIsChanged(t *testing.T) {
	const (
		old   = nodeSecret
		fresh = "the-next-secret-of-the-same-nodes-0123456789"
	)
	both, turned := old+"\n"+fresh+"\n", fresh+"\n"+old+"\n"
	for i, state := range []struct{ head, worker string }{
		{old, old},
		{both, old},
		{old, both},
		{both, both},
		{turned, both},
		{both, turned},
		{turned, turned},
		{fresh, turned},
		{turned, fresh},
		{fresh, fresh},
	} {
		o := options(t)
		o.Role, o.NodeSecretFile = server.RoleHeadnode, file(t, state.head)
		head := start(t, o)
		w := workerOptions(t, "one", head.internal())
		w.NodeSecretFile = file(t, state.worker)
		worker := start(t, w) // which needs the headnode
		shown, _, _ := strings.Cut(state.head, "\n")
		headers := map[string]string{"X-Node-Secret": shown}
		if r := request(t, "GET", worker.internal()+"/internal/control/scrub", "", "", headers); r.status != 200 {
			t.Errorf("state %d: the worker answers its headnode with %d: %s", i, r.status, r.text)
		}
		headers["X-Node-Secret"] = "another-secret-than-all-of-these-0123456789"
		if r := request(t, "GET", worker.internal()+"/internal/control/scrub", "", "", headers); r.status != 403 {
			t.Errorf("state %d: a wrong secret: %d", i, r.status)
		}
		worker.end(t)
		head.end(t)
	}
	for name, content := range map[string]string{
		"three secrets": strings.Repeat(old+"\n", 3), "a short second one": old + "\nshort\n", "none": "\n",
		"two in a line": old + " " + fresh,
	} {
		o := options(t)
		o.Role, o.NodeSecretFile = server.RoleHeadnode, file(t, content)
		if found := o.Check(); len(found) != 1 || !strings.Contains(found[0].Error(), "in a second line") {
			t.Errorf("%s: %q", name, found)
		}
	}
}

// TestNodeSecretsThatDiffer: both sides say in their logs what is wrong.
func TestNodeSecretsThatDiffer(t *testing.T) {
	o := options(t)
	o.Role, o.NodeSecretFile = server.RoleHeadnode, file(t, nodeSecret)
	head := start(t, o)
	w := workerOptions(t, "one", head.internal())
	ofWorker, ofHead := listenFor("the node secret differs between the two"), listenFor("the node secret differs between the two")
	w.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(ofWorker, t.Output()), nil))
	start(t, w)

	// The headnode comes back at the same address with another secret.
	o.InternalListen = strings.TrimPrefix(head.internal(), "http://")
	head.end(t)
	o.NodeSecretFile = file(t, strings.Repeat("other", 10))
	o.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(ofHead, t.Output()), nil))
	start(t, o)
	<-ofWorker.heard
	<-ofHead.heard
}
