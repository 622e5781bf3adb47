package usage_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"j17/internal/base/clock"
	"j17/internal/follow/outbound"
	"j17/internal/plane/control"
	"j17/internal/plane/usage"
)

var alert = usage.Alert{
	Instance: "ins_1", Name: "app", Plan: "free", Period: "2026-11", Metric: "events", Threshold: 80, Used: 81,
	Limit: 100,
}

func TestWebhook(t *testing.T) {
	status := http.StatusNoContent
	var body []byte
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		got = r.Header
		w.WriteHeader(status)
	}))
	defer s.Close()
	options := usage.WebhookOptions{
		URL: s.URL + "/secret-path", Secret: "secret",
		Sender: outbound.New(outbound.Options{Clock: clock.System{}, Private: true}),
	}
	hook := usage.Webhook(options)
	if err := hook.Send(t.Context(), alert); err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write(body)
	if signature := got.Get("X-J17-Signature"); signature != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %q", signature)
	}
	if id := got.Get("Webhook-Id"); id != "ins_1/2026-11/events/100/80" || got.Get("Webhook-Signature") == "" {
		t.Errorf("%v", got)
	}
	var sent map[string]any
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	if sent["type"] != "usage.alert" || sent["instance_id"] != "ins_1" || sent["threshold"] != 80.0 ||
		sent["summary"] != alert.Summary() {
		t.Errorf("%s", body)
	}
	status = http.StatusInternalServerError
	if err := hook.Send(t.Context(), alert); err == nil || strings.Contains(err.Error(), "secret-path") {
		t.Errorf("status 500: %v", err)
	}
}

// mailbox is an SMTP server that keeps what it gets.
type mailbox struct {
	from string
	to   []string
	data string
}

// NewSession begins a conversation.
func (b *mailbox) NewSession(*smtp.Conn) (smtp.Session, error) { return b, nil }

// Mail takes the sender.
func (b *mailbox) Mail(from string, _ *smtp.MailOptions) error { b.from = from; return nil }

// Rcpt takes one recipient.
func (b *mailbox) Rcpt(to string, _ *smtp.RcptOptions) error { b.to = append(b.to, to); return nil }

// Data takes the message.
func (b *mailbox) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	b.data = string(raw)
	return err
}

// Reset ends a message.
func (b *mailbox) Reset() {}

// Logout ends the conversation.
func (b *mailbox) Logout() error { return nil }

func TestMail(t *testing.T) {
	f := start(t)
	box := &mailbox{}
	server := smtp.NewServer(box)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	address, _ := l.Addr().(*net.TCPAddr)
	options := usage.MailOptions{Host: "127.0.0.1", Port: address.Port, TLS: usage.TLSNone, From: "j17@example.com"}
	about := alert
	about.Instance = f.app.ID
	send := func(to ...string) {
		t.Helper()
		*box = mailbox{}
		options.To = to
		c, err := usage.Mail(options, f.registry)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(t.Context(), about); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(to ...string) {
		t.Helper()
		if diff := cmp.Diff(to, box.to); diff != "" {
			t.Errorf("recipients (-want +got):\n%s", diff)
		}
		if len(to) > 0 && (box.from != "j17@example.com" || !strings.Contains(
			box.data, "Subject: app: 80 % of the plan used",
		) || !strings.Contains(box.data, "81 of 100 events")) {
			t.Errorf("from %s:\n%s", box.from, box.data)
		}
	}
	send()
	expect() // There is nobody.
	send("a@example.com", "b@example.com")
	expect("a@example.com", "b@example.com")
	add := func(email string, role control.Role, instances ...string) {
		t.Helper()
		if _, err := f.registry.Operators.Create(t.Context(), control.NewOperator{
			Email: email, Password: "a long password", Role: role, Instances: instances,
		}); err != nil {
			t.Fatal(err)
		}
	}
	add("platform@example.com", control.RolePlatformAdmin)
	add("stranger@example.com", control.RoleInstanceAdmin)
	add("auditor@example.com", control.RoleAuditor, f.app.ID)
	send()
	expect("platform@example.com")
	add("manager@example.com", control.RoleInstanceAdmin, f.app.ID)
	send()
	expect("manager@example.com")

	// A server without STARTTLS is not spoken to in clear unless that was asked for.
	options.TLS, options.To = usage.TLSStart, []string{"a@example.com"}
	*box = mailbox{}
	c, err := usage.Mail(options, f.registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), about); err == nil || box.data != "" {
		t.Errorf("sent without TLS: %v", err)
	}
}

func TestMailSettingsAreChecked(t *testing.T) {
	f := start(t)
	good := usage.MailOptions{Host: "mail.example.com", From: "j17@example.com", User: "u", Password: "hunter2"}
	if _, err := usage.Mail(good, f.registry); err != nil {
		t.Fatal(err)
	}
	for what, edit := range map[string]func(*usage.MailOptions){
		"no host":    func(o *usage.MailOptions) { o.Host = "" },
		"port":       func(o *usage.MailOptions) { o.Port = 70_000 },
		"TLS":        func(o *usage.MailOptions) { o.TLS = "perhaps" },
		"from":       func(o *usage.MailOptions) { o.From = "nobody" },
		"header":     func(o *usage.MailOptions) { o.From = "a@example.com\r\nBcc: x@example.com" },
		"recipients": func(o *usage.MailOptions) { o.To = []string{"a@example.com", "b"} },
	} {
		o := good
		edit(&o)
		if _, err := usage.Mail(o, f.registry); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
