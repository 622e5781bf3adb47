package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/wneessen/go-mail"

	"j17/internal/follow/outbound"
	"j17/internal/plane/control"
)

// WebhookOptions say where alerts are posted.
type WebhookOptions struct {
	URL string
	// Secret, if not "", signs the messages.
	Secret string
	// Sender sends them. The address comes from the server's configuration, so it may be a private one.
	Sender *outbound.Sender
}

// Webhook returns a channel that posts alerts as JSON.
func Webhook(o WebhookOptions) Channel {
	return Channel{Name: "webhook", Send: func(ctx context.Context, a Alert) error {
		body, err := json.Marshal(struct {
			Type    string `json:"type"`
			Summary string `json:"summary"`
			Alert
		}{"usage.alert", a.Summary(), a})
		if err != nil {
			return err
		}
		m := outbound.Message{URL: o.URL, ID: a.key(), ContentType: "application/json", Body: body}
		if o.Secret != "" {
			m.Keys = [][]byte{[]byte(o.Secret)}
		}
		_, err = o.Sender.Send(ctx, m)
		return err
	}}
}

// TLSMode is how a connection to a mail server is protected.
type TLSMode string

// The modes: TLS from the start, STARTTLS required (the default), and none, for a relay on the same machine.
const (
	TLSImplicit TLSMode = "tls"
	TLSStart    TLSMode = "starttls"
	TLSNone     TLSMode = "none"
)

// MailOptions say how alerts are mailed.
type MailOptions struct {
	Host string
	// Port 0 means the usual one of the mode.
	Port int
	TLS  TLSMode
	// User and Password log in if the server asks for it; "" means no login.
	User     string
	Password string
	From     string
	// To gets every alert. If it is empty, the managers of the instance get it: the instance admins with a grant for
	// it, or the platform admins if there are none.
	To []string
}

// Mail returns a channel that sends alerts over SMTP.
func Mail(o MailOptions, registry *control.Registry) (Channel, error) {
	// The settings.
	options := []mail.Option{mail.WithTimeout(sendTime)}
	switch o.TLS {
	case TLSImplicit:
		options = append(options, mail.WithSSLPort(false))
	case TLSStart, "":
		options = append(options, mail.WithTLSPortPolicy(mail.TLSMandatory))
	case TLSNone:
		options = append(options, mail.WithTLSPortPolicy(mail.NoTLS))
	default:
		return Channel{}, fmt.Errorf("the mail server's TLS mode must be %s, %s or %s", TLSImplicit, TLSStart, TLSNone)
	}
	if o.Port != 0 {
		options = append(options, mail.WithPort(o.Port))
	}
	if o.User != "" {
		options = append(
			options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.User),
			mail.WithPassword(o.Password),
		)
	}

	client, err := mail.NewClient(o.Host, options...)
	if err != nil {
		return Channel{}, fmt.Errorf("the mail server's settings are not valid: %w", err)
	}

	// A wrong address is better found now than with the first alert.
	for _, address := range append([]string{o.From}, o.To...) {
		if err := mail.NewMsg().From(address); err != nil {
			return Channel{}, fmt.Errorf("%q is not a mail address: %w", address, err)
		}
	}

	// An alert goes to the configured addresses, or to the managers of the instance.
	return Channel{Name: "mail", Send: func(ctx context.Context, a Alert) error {
		to := o.To
		if len(to) == 0 {
			to = managers(registry, a.Instance)
		}
		if len(to) == 0 {
			return nil
		}
		m := mail.NewMsg(mail.WithNoDefaultUserAgent())
		err := errors.Join(m.From(o.From), m.To(to...))
		m.Subject(fmt.Sprintf("%s: %d %% of the plan used", a.Name, a.Threshold))
		m.SetBodyString(mail.TypeTextPlain, a.Summary()+"\n\nNothing is switched off because of this. Choose a larger plan, or use less.\n")
		if err != nil {
			return err
		}
		return client.DialAndSendWithContext(ctx, m)
	}}, nil
}

// managers returns the addresses of the managers of an instance.
func managers(registry *control.Registry, instance string) []string {
	var granted, platform []string
	for _, op := range registry.Operators.All() {
		switch {
		case op.Role == control.RolePlatformAdmin:
			platform = append(platform, op.Email)
		case op.Role == control.RoleInstanceAdmin && slices.Contains(op.Instances, instance):
			granted = append(granted, op.Email)
		}
	}
	if len(granted) > 0 {
		return granted
	}
	return platform
}
