// Command webhooks receives what a listener of j17 is told, checks that it comes from there, and prints it.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// tolerance is how far the time of a message may be from ours: older ones may be copies that somebody has kept.
	tolerance = 5 * time.Minute
	// maxBody is more than any message has.
	maxBody = 2 << 20
	// remembered is how many ids of messages are kept, so that one that comes twice counts once.
	remembered = 10_000
)

// receiver is the endpoint of a listener.
type receiver struct {
	key    []byte
	now    func() time.Time
	handle func(event json.RawMessage) error

	mu   sync.Mutex
	seen map[string]bool
	ids  []string
}

func newReceiver(secret string, handle func(json.RawMessage) error) (*receiver, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(secret), "whsec_"))
	if err != nil || len(key) == 0 {
		return nil, errors.New("the secret is not whsec_ and base64: GET /_admin/listeners shows it")
	}
	return &receiver{key: key, now: time.Now, handle: handle, seen: map[string]bool{}}, nil
}

// ServeHTTP takes one message. Any status but 2xx asks for it to be sent again.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	if !r.genuine(req.Header, body) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	id := req.Header.Get("Webhook-Id")
	if r.known(id) {
		return // 200: it has been taken already
	}
	var message struct {
		Event json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := r.handle(message.Event); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.remember(id)
}

// genuine tells whether a message was signed with the secret, and lately. The bytes that came are what was signed.
func (r *receiver) genuine(h http.Header, body []byte) bool {
	id, at := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || r.now().Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, r.key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))

	// After a rotation there are two.
	for given := range strings.FieldsSeq(h.Get("Webhook-Signature")) {
		if hmac.Equal([]byte(given), want) {
			return true
		}
	}
	return false
}

func (r *receiver) known(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[id]
}

// remember keeps the id of a message that was handled. A real application keeps it where it keeps what it has done.
func (r *receiver) remember(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] = true; len(r.ids) == remembered {
		delete(r.seen, r.ids[0])
		r.ids = r.ids[1:]
	}
	r.ids = append(r.ids, id)
}

func main() {
	address := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	file := flag.String("secret-file", "", "file with the listener's secret")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	secret, err := os.ReadFile(*file)
	if err == nil {
		var r *receiver
		r, err = newReceiver(string(secret), func(event json.RawMessage) error {
			_, err := fmt.Fprintf(os.Stdout, "%s\n", event)
			return err
		})
		if err == nil {
			server := &http.Server{Addr: *address, Handler: r, ReadTimeout: 10 * time.Second}
			err = server.ListenAndServe()
		}
	}
	log.Error("the receiver has ended", slog.Any("error", err))
}
