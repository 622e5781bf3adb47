package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/envlog"
	"j17/internal/follow/outbound"
)

// openProofs creates the services that keep the logs of environments.
func (s *Server) openProofs() error {
	o := &s.options
	anchor, err := anchorTo(o)
	if err != nil {
		return fmt.Errorf("the signed heads of logs cannot be kept: %w", err)
	}
	s.logs = envlog.New(envlog.Options{
		Store: s.store, Clock: o.Clock, Worker: s.worker, Origin: s.originOf, Anchor: anchor,
	})
	return nil
}

// originOf names the log of an environment: by the host of its instance, and the environment.
func (s *Server) originOf(t j17.Tenant) (string, error) {
	instance, env := instanceOf(t)
	known, ok := s.registry.Instances.ByID(instance)
	if !ok {
		return "", fmt.Errorf("server: there is no instance %q", instance)
	}
	return known.Name + "." + s.options.BaseDomain + "/" + string(env), nil
}

// anchorURL returns the URL that heads are posted to; nil if they are appended to a file.
func anchorURL(to string) (*url.URL, error) {
	if !strings.HasPrefix(to, "https://") && !strings.HasPrefix(to, "http://") {
		return nil, nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return nil, errors.New("the URL is not valid: it must name a host")
	}
	return u, nil
}

// anchor checks the setting of where heads are kept.
func (c *checks) anchor(o *Options) {
	if _, err := anchorURL(o.AuditAnchor); err != nil {
		c.add("audit-anchor: %w", err)
	}
}

// anchorTo returns the function that stores heads at the place in the options, or nil if none is set.
func anchorTo(o *Options) (func(context.Context, []byte) error, error) {
	to := o.AuditAnchor
	if to == "" {
		return nil, nil
	}
	u, err := anchorURL(to)
	if err != nil {
		return nil, err
	}
	if u == nil {
		// A file that cannot be written is reported at the start rather than an hour later.
		return func(_ context.Context, lines []byte) error { return appendLines(to, lines) }, appendLines(to, nil)
	}
	// Receivers compare the time of a message with their own, whatever the clock of a development server shows.
	sender := outbound.New(outbound.Options{Clock: clock.System{}, Private: o.PrivateBackups})
	return func(ctx context.Context, lines []byte) error {
		id := sha256.Sum256(lines)
		_, err := sender.Send(ctx, outbound.Message{
			URL: to, ID: "anchor_" + hex.EncodeToString(id[:12]), ContentType: "application/x-ndjson", Body: lines,
		})
		return err
	}, nil
}

// appendLines appends lines to a file, which it creates if needed. They are on disk when it returns.
func appendLines(name string, lines []byte) (err error) {
	//nolint:gosec // the operator has named it, and others are to read it
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	// A crash may have left the last line incomplete.
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if last := make([]byte, 1); end > 0 && len(lines) > 0 {
		if _, err := f.ReadAt(last, end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	if _, err := f.Write(lines); err != nil {
		return err
	}
	return f.Sync()
}
